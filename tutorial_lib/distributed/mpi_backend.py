"""The ``torch.distributed`` backend over MPI: ``init_process_group("mpi4py", ...)``.

A ``ProcessGroup`` written in Python. It needs no port: MPI itself connects the ranks. Waits poll,
so that Ctrl-C, a time-out and ``cancel`` get in, and ``pending`` tells from another thread what is
under way. It carries DDP, FSDP2, ZeRO and checkpoints as gloo does, and reduces many times faster.

**Threads:** with ``MPI_THREAD_MULTIPLE``, which mpi4py asks for, any thread may use any group;
the collectives of one group must still come in the same order on all its ranks, so let one thread
issue them. ``cancel`` and ``pending`` are for other threads, at any time. With less, all MPI calls
must come from one thread, nothing progresses in the background, and the rest works.
"""

from __future__ import annotations

import threading
from typing import Any

import torch.distributed as dist
from mpi4py import MPI
from torch.distributed.constants import default_pg_timeout

from tutorial_lib.distributed.mpi_errors import CollectiveCancelledError, CollectiveError
from tutorial_lib.distributed.mpi_group import Group
from tutorial_lib.distributed.mpi_identity import NAME
from tutorial_lib.distributed.mpi_pending import Pending

_groups: list[Group] = []  # of this process, the default group first
_cancelling = threading.Lock()


def register() -> None:
    """Make the backend known to torch under the name "mpi4py". Calling twice does no harm."""
    if NAME not in dist.Backend.backend_list:
        dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu"])


def _create(options: Any, backend_options: object) -> Group:
    """Make the group that torch asks for; torch calls this on its members only. Collective."""
    ranks = list(options.global_ranks_in_group)
    timeout_s = options.timeout.total_seconds()
    if ranks:
        world = groups()[0]
        if options.timeout == default_pg_timeout:  # the caller of new_group named none
            timeout_s = world.timeout_s
        group = Group(options.group_rank, ranks, options.group_id, timeout_s, world)
    else:
        comm = MPI.COMM_WORLD
        if (options.group_rank, options.group_size) != (comm.rank, comm.size):
            raise ValueError(
                f"torch calls this rank {options.group_rank} of {options.group_size}, MPI calls "
                f"it {comm.rank} of {comm.size}: give init_process_group MPI's numbers"
            )
        group = Group(comm.rank, range(comm.size), options.group_id, timeout_s)
    with _cancelling:  # an earlier cancel has stopped the default group, at which ``open`` looks
        _groups[:] = [*groups(), group] if ranks else [group]
    try:
        group.open()
    except BaseException:
        _groups.remove(group)
        raise
    return group


def groups() -> list[Group]:
    """This process's groups that are in use, the default group first."""
    return [group for group in _groups if group.is_open]


def cancel(reason: str, kind: type[CollectiveError] = CollectiveCancelledError) -> None:
    """End every wait of this process with an error; any thread may.

    The groups are out of order from then on, until all ranks call ``renew``.

    Args:
        reason: Why, for the error: "rank 1 failed: ZeroDivisionError ...".
        kind: Of the error.
    """
    with _cancelling:
        for group in _groups:
            group.stop(kind, reason)


def check_calls(is_on: bool) -> None:
    """Compare what the ranks call, in every collective of every group, or stop doing so.

    Ranks that call different things then get a ``CollectiveMismatchError`` at once, which names
    them and their lines; otherwise some would wait, and others get a wrong result. It costs each
    collective some of its speed: measured in docs/faults.md.

    Args:
        is_on: Equal on all ranks.

    **Distributed:** collective over all ranks.
    """
    dist.barrier()  # nothing of before is under way on any rank that goes on
    for group in groups():
        group.check_calls(is_on)


def pending() -> list[Pending]:
    """What this process has started between ranks and not ended; any thread may ask."""
    return [operation for group in groups() for operation in group.pending()]


def renew() -> None:
    """Start over after an error, an interrupt or a time-out: all groups get new communicators.

    The group objects stay, so DDP wrappers and whoever else holds one go on with it; a
    ``DistributedDataParallel`` that was interrupted in a backward also needs its
    ``reducer._reset_state()``. What was under way is left behind, and so are the communicators:
    MPI has about 2,000, of which this takes one for each group. A group that not all its members
    have (the error came while it was made) stays out of order.

    Raises:
        CollectiveTimeoutError: Not every rank called this.

    **Distributed:** collective over all ranks, whatever each was doing before.
    """
    with _cancelling:  # let one that has begun reach all groups first
        default, *others = groups()
    keys: dict[tuple[tuple[int, ...], int], Group] = {}  # names may differ between ranks
    for group in others:
        same = sum(ranks == group.ranks for ranks, _ in keys)
        keys[group.ranks, same] = group
    default.open()
    known: list[list[object]] = [[] for _ in default.ranks]
    dist.all_gather_object(known, list(keys), group=default)
    for key, group in sorted(keys.items(), key=lambda item: item[0]):
        if all(key in known[rank] for rank in group.ranks):
            group.open()
        else:
            group.stop(CollectiveError, "not all its members have it")
