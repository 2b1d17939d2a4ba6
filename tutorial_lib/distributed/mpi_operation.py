"""What the collectives have in common: parts of MPI calls, begun together by the group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
import torch.distributed as dist
from mpi4py import MPI

from tutorial_lib.distributed.mpi_work import Work

Item = TypeVar("Item")


class Part(NamedTuple):
    """One tensor's share of an operation.

    Attributes:
        post: Starts it on a communicator, without waiting.
        finish: Brings the result where it belongs, once MPI is done.
        keeps: Memory that MPI works in, which must live until then.
    """

    post: Callable[[MPI.Comm], MPI.Request | list[MPI.Request]]
    finish: Callable[[], None] | None = None
    keeps: tuple[torch.Tensor, ...] = ()


# torch's stubs give each operation several C++ signatures, of which Python code calls one.
ProcessGroup: Any = dist.ProcessGroup


class Operations(ProcessGroup):  # type: ignore[misc]
    """A process group whose operations are made of parts.

    The methods' names and parameters are those that torch calls; what they mean is in the
    documentation of ``torch.distributed``. Ranks are group ranks here.
    """

    def begin(
        self,
        operation: str,
        tensors: Sequence[torch.Tensor],
        parts: Sequence[Part],
        opts: Any,
        peer: int | None = None,
        result: Sequence[torch.Tensor] | None = None,
    ) -> Work:
        """Start an operation.

        Args:
            operation: torch's name for it.
            tensors: What it moves, for whoever asks what is pending.
            parts: What to do.
            opts: torch's options, for their time-out; None for the group's.
            peer: Group rank of the root, sender or receiver.
            result: What the work and its future return; None for the tensors.

        Returns:
            The work.
        """
        raise NotImplementedError


def only(items: Sequence[Item]) -> Item:
    """The single item of a list: torch's lists once had one for each GPU of a process."""
    if len(items) != 1:
        raise ValueError(f"expected one tensor (or one list of them) per rank, got {len(items)}")
    return items[0]


def flat(lists: Sequence[Sequence[Item]]) -> list[Item]:
    """The items of some lists, in one."""
    return [item for items in lists for item in items]
