"""What a rank does to be ready: an all-reduce with all others, then the process group.

These functions run on the engines. The first needs MPI only, so that ranks are ready before they
import torch.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from tutorial_lib.cluster import mpi_flavour, output_limit
from tutorial_lib.cluster.cell import Answer, answer
from tutorial_lib.cluster.runtime import FOLDER_VARIABLE, ClusterFolder
from tutorial_lib.distributed.topology import available_cores, threads_per_rank

ALL_REDUCE_TIMEOUT_S = 20.0
NOTEBOOK_FIRST_S = 10.0  # the notebook, which knows where all ranks are, ends a wait before MPI

_in_flight: list[object] = []  # MPI may still write into the buffers of a request given up


def place() -> Answer:
    """Say who this is, in MPI and on its host.

    Returns:
        An answer with this rank's place.
    """

    def work() -> dict[str, Any]:
        from mpi4py import MPI

        log = _log(MPI.COMM_WORLD.rank)
        output_limit.install(MPI.COMM_WORLD.rank, log)
        return {
            "rank": MPI.COMM_WORLD.rank,
            "size": MPI.COMM_WORLD.size,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "cores": available_cores(),
            "threads": threads(MPI.COMM_WORLD.size),
            "mpi": mpi_flavour.library_name(MPI.Get_library_version()),
            "log": log,
        }

    return answer(work)


def _log(rank: int) -> str:
    """The file that has all of this rank's output, "" if that is not ours to say."""
    folder = os.environ.get(FOLDER_VARIABLE)
    return str(ClusterFolder(Path(folder)).log(f"rank-{rank}")) if folder else ""


def meet(folder: str) -> Answer:
    """Pass an all-reduce with all ranks, and go to where the notebook works.

    Args:
        folder: Where that is; a rank of another host may not have it, and stays where it is.

    **Distributed:** collective over MPI.COMM_WORLD; gives up after ALL_REDUCE_TIMEOUT_S.
    """

    def work() -> None:
        _all_reduce()
        with contextlib.suppress(OSError):
            os.chdir(folder)

    return answer(work)


def open_session(timeout_s: float, checks_calls: bool) -> Answer:
    """Open this rank's distributed session: imports torch and forms the process group.

    Args:
        timeout_s: How long the notebook lets a rank wait in a collective, in seconds.
        checks_calls: Whether the ranks compare what they call.

    Returns:
        An answer with what the reader should know of its GPUs; see ``gpu_placement``.

    **Distributed:** collective over all ranks.
    """

    def work() -> str:
        # An import of torch that is interrupted can't be repeated in the same process.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        from tutorial_lib.distributed import mpi_backend, recovery, session

        opened = session.start(timeout_s=timeout_s + NOTEBOOK_FIRST_S)
        if recovery.is_renewable():
            mpi_backend.check_calls(checks_calls)  # whatever an earlier notebook has chosen
        return opened.note

    return answer(work)


def has_groups() -> Answer:
    """Whether this rank has process groups that can be renewed."""

    def work() -> bool:
        if "torch" not in sys.modules:
            return False  # then it has none, and need not import it to say so
        from tutorial_lib.distributed import recovery

        return recovery.is_renewable()

    return answer(work)


def renew_groups() -> Answer:
    """Start over after a failure: groups as new, rank 0's weights in all data-parallel models.

    Returns:
        An answer with the names of those models.

    **Distributed:** collective over all ranks, which all have groups.
    """

    def work() -> list[str]:
        # An interrupt that strikes some of the ranks only would leave them out of step.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        from tutorial_lib.distributed import recovery

        return recovery.renew()

    return answer(work)


def threads(local_ranks: int) -> int:
    """How many threads this rank's numerical libraries use.

    Args:
        local_ranks: Number of ranks on this host, if nothing says how many threads.
    """
    if torch := sys.modules.get("torch"):
        return int(torch.get_num_threads())
    text = os.environ.get("OMP_NUM_THREADS", "")
    return int(text) if text.isdigit() else threads_per_rank(local_ranks)


def _all_reduce() -> None:
    """Sum a one from each rank, without ever waiting for ever."""
    from mpi4py import MPI

    n = MPI.COMM_WORLD.size
    one, total = bytearray((1).to_bytes(8, "little")), bytearray(8)
    request = MPI.COMM_WORLD.Iallreduce([one, MPI.INT64_T], [total, MPI.INT64_T])
    deadline = time.monotonic() + ALL_REDUCE_TIMEOUT_S
    while not request.Test():
        if time.monotonic() > deadline:
            _in_flight.append((request, one, total))
            raise TimeoutError(
                f"rank {MPI.COMM_WORLD.rank} waited {ALL_REDUCE_TIMEOUT_S:.0f} s in an all-reduce "
                f"of {n} ranks: MPI can't reach all of them"
            )
        time.sleep(0)
    if (found := int.from_bytes(total, "little")) != n:
        raise RuntimeError(f"an all-reduce of {n} ones gave {found}")
