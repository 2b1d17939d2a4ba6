"""Runs a program's checks on all ranks, one after another, and names those that fail anywhere."""

import sys
import traceback
from collections.abc import Callable, Sequence

from mpi4py import MPI


def run_checks(checks: Sequence[Callable[[], None]], recover: Callable[[], None]) -> None:
    """Print "passed: ..." or what failed, on rank 0; exit with the number of failures.

    ``recover`` puts the ranks in step again after a failure, so that the next check means
    something. All ranks call this.
    """
    world, failed = MPI.COMM_WORLD, []
    for check in checks:
        error = ""
        try:
            check()
        except Exception:
            error = traceback.format_exc()
        errors = world.allgather(error)
        if any(errors):
            failed.append(check.__name__)
            if world.rank == 0:
                texts = [f"rank {rank}: {text}" for rank, text in enumerate(errors) if text]
                sys.stdout.write(f"FAILED {check.__name__}\n" + "\n".join(texts))
                sys.stdout.flush()
            recover()
    if world.rank == 0:
        passed = [check.__name__ for check in checks if check.__name__ not in failed]
        sys.stdout.write(f"passed: {' '.join(passed)}\nfailed: {' '.join(failed)}\n")
    sys.stdout.flush()
    sys.exit(len(failed))
