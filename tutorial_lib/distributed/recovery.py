"""After a failure on any rank: end all waits, then start over with the ranks and models there are.

One way for all backends: the ranks' groups may talk through MPI or, a session's own, through gloo.
"""

from __future__ import annotations

from tutorial_lib.distributed import data_parallel, gloo_sockets, mpi_backend, session
from tutorial_lib.distributed.mpi_errors import (
    CollectiveCancelledError,
    CollectiveError,
    CollectiveTimeoutError,
)


def cancel(reason: str, is_timeout: bool = False) -> None:
    """End every wait of this process with an error; any thread may.

    The groups are out of order from then on, until all ranks call ``renew``.

    Args:
        reason: Why, for the error.
        is_timeout: Whether it stands for the groups' time-out, as a CollectiveTimeoutError.
    """
    kind: type[CollectiveError] = CollectiveTimeoutError if is_timeout else CollectiveCancelledError
    mpi_backend.cancel(reason, kind)
    gloo_sockets.shut_down()


def is_renewable() -> bool:
    """Whether this rank has groups that ``renew`` can bring back."""
    return bool(mpi_backend.groups()) or session.is_renewable()


def renew() -> list[str]:
    """Start over: groups as new, and rank 0's weights in all data-parallel models.

    Returns:
        The names of the models' classes, for whoever must be told of the weights.

    **Distributed:** collective over all ranks, whatever each was doing before.
    """
    if mpi_backend.groups():
        mpi_backend.renew()
    else:
        session.renew()
    return data_parallel.recover()
