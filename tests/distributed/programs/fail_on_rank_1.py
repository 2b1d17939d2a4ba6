"""Rank 1 fails; the others wait for it in a collective."""

import sys

from tutorial_lib.distributed import session

with session.script() as ranks:
    if ranks.rank == 1:
        if sys.argv[1] == "error":
            raise ValueError("no more paper")
        sys.exit(int(sys.argv[1]) if sys.argv[1].isdigit() else sys.argv[1])
    ranks.barrier()
