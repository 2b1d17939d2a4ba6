"""Communicators of our own, made so that a rank that does not come freezes nobody.

``MPI.COMM_WORLD`` itself never carries data: after an error, with messages of unknown number still
under way, all ranks can take a fresh duplicate of it and go on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from mpi4py import MPI

from tutorial_lib.distributed.mpi_errors import CollectiveTimeoutError
from tutorial_lib.distributed.mpi_messages import meeting_tag
from tutorial_lib.distributed.mpi_wait import wait_until

# A duplicate that was begun and not waited for to the end. MPI pairs the ranks' calls in order,
# so the next attempt must finish this one rather than begin another.
_begun: list[tuple[MPI.Intracomm, MPI.Request]] = []


def duplicate_world(timeout_s: float, check: Callable[[], None] | None = None) -> MPI.Intracomm:
    """A fresh communicator of all ranks.

    Args:
        timeout_s: How long to wait for the other ranks, in seconds.
        check: Called while waiting; raises to give up.

    Returns:
        The communicator; free it in the end.

    Raises:
        CollectiveTimeoutError: Not every rank called this.

    **Distributed:** collective over all ranks.
    """
    if not _begun:
        _begun.append(MPI.COMM_WORLD.Idup())
    comm, request = _begun[0]
    if not wait_until(request.Test, timeout_s, check):
        raise CollectiveTimeoutError(
            f"rank {MPI.COMM_WORLD.rank} waited {timeout_s:g} s for a fresh communicator: not all "
            "ranks asked for one. Make the call on every rank; whoever is late finds this one "
            "waiting"
        )
    _begun.clear()
    return comm


def subset(
    world: MPI.Comm,
    ranks: Sequence[int],
    timeout_s: float,
    check: Callable[[], None] | None = None,
) -> MPI.Intracomm:
    """A fresh communicator of some ranks.

    ``Create_group`` cannot be interrupted, so the members first meet in a barrier of messages,
    which can; past it they all are about to call it. One that leaves the barrier after entering
    it (cancelled, interrupted, timed out) may leave others past it, in ``Create_group``, where
    nothing reaches them.

    Args:
        world: Communicator of all ranks, on which they meet.
        ranks: The members, in their new order.
        timeout_s: How long to wait for the other members, in seconds.
        check: Called while waiting; raises to give up.

    Returns:
        The communicator; free it in the end.

    Raises:
        CollectiveTimeoutError: Not every member called this.

    **Distributed:** collective over the members.
    """
    tag, size = meeting_tag(ranks), len(ranks)
    me = ranks.index(world.rank)
    nothing = bytearray(0)
    step = 1
    while step < size:
        requests = [
            world.Isend([nothing, 0, MPI.BYTE], ranks[(me + step) % size], tag),
            world.Irecv([nothing, 0, MPI.BYTE], ranks[(me - step) % size], tag),
        ]
        if not wait_until(partial(MPI.Request.Testall, requests), timeout_s, check):
            raise CollectiveTimeoutError(
                f"rank {world.rank} waited {timeout_s:g} s for the members of a new group, ranks "
                f"{list(ranks)}: make it on all of them, in the same order"
            )
        step *= 2
    everybody = MPI.COMM_WORLD.Get_group()
    members = everybody.Incl(list(ranks))
    comm = MPI.COMM_WORLD.Create_group(members, tag % 32768)
    members.Free()
    everybody.Free()
    return comm
