"""What a rank does to show that it is ready: an all-reduce over MPI.COMM_WORLD, with all others.

It runs on the engines and needs no torch.
"""

from __future__ import annotations

import os
import socket
import time
from typing import Any

from tutorial_lib.distributed.topology import available_cores, threads_per_rank

ALL_REDUCE_TIMEOUT_S = 30.0


def join(n: int) -> dict[str, Any]:
    """Pass an all-reduce with all ranks, and say who this is.

    Args:
        n: How many ranks there should be.

    Returns:
        This rank's place, and the number of ranks that took part.

    **Distributed:** collective over MPI.COMM_WORLD; waits at most ALL_REDUCE_TIMEOUT_S.
    """
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    total = bytearray(8)
    one = bytearray((1).to_bytes(8, "little"))
    request = world.Iallreduce([one, MPI.INT64_T], [total, MPI.INT64_T])
    deadline = time.monotonic() + ALL_REDUCE_TIMEOUT_S
    status = "ok"
    while not request.Test():
        if time.monotonic() > deadline:
            request.Cancel()
            status = "error"
            break
        time.sleep(0)
    threads = os.environ.get("OMP_NUM_THREADS", "")
    return {
        "status": status,
        "message": f"no all-reduce within {ALL_REDUCE_TIMEOUT_S:.0f} s" if status != "ok" else "",
        "rank": world.rank,
        "size": int.from_bytes(total, "little") if status == "ok" else world.size,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "cores": available_cores(),
        "threads": int(threads) if threads.isdigit() else threads_per_rank(n),
        "mpi": MPI.Get_library_version().splitlines()[0].split(",")[0].strip(),
        "time": time.time(),
        "is_interrupt": False,
    }


def open_session() -> None:
    """Open the distributed session of this rank: imports torch and forms the process group.

    **Distributed:** collective over all ranks.
    """
    from tutorial_lib.distributed import session

    session.start()
