"""What each rank calls, compared between the ranks before a collective's data moves.

An exchange of a few bytes goes ahead, on a communicator of its own. MPI pairs collectives in their
order, so the exchanges meet whatever the ranks call. Data of calls that differ must not meet: MPI
may then end the process.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch.distributed as dist
from mpi4py import MPI

from tutorial_lib.distributed.call_site import call_site
from tutorial_lib.distributed.mpi_errors import CollectiveMismatchError

if TYPE_CHECKING:
    from tutorial_lib.distributed.mpi_work import Work

CALL_BYTES = 104
SITE_BYTES = 88
BYTES = CALL_BYTES + SITE_BYTES

# In these a rank's tensor may have a shape of its own.
FREE_SHAPES = frozenset({"all_gather", "gather", "scatter", "all_to_all", "all_to_all_single"})


class Fingerprint:
    """A collective as this rank calls it, and as the others do.

    Args:
        work: The collective.
        opts: torch's options of it.

    Attributes:
        site: The reader's line that calls it.
    """

    def __init__(self, work: Work, opts: Any) -> None:
        self.site = call_site(sys._getframe(2))
        self._work = work
        call = _call(work, opts).encode()[:CALL_BYTES].ljust(CALL_BYTES, b"\0")
        self._own = call + self.site.encode()[:SITE_BYTES].ljust(SITE_BYTES, b"\0")
        self._everyone = bytearray(BYTES * work.group.size())
        self._request: MPI.Request | None = None  # until it is posted
        self._is_agreed = False

    def post(self, comm: MPI.Comm) -> None:
        """Start to compare."""
        self._request = comm.Iallgather([self._own, MPI.BYTE], [self._everyone, MPI.BYTE])

    def is_agreed(self) -> bool:
        """Whether all ranks have called this, and the same.

        Raises:
            CollectiveMismatchError: They call different things.
        """
        if not self._is_agreed:
            if self._request is None or not self._request.Test():
                return False
            everyone = self._everyone
            own = self._own[:CALL_BYTES]
            for start in range(0, len(everyone), BYTES):
                if everyone[start : start + CALL_BYTES] != own:
                    raise CollectiveMismatchError(self._difference())
            self._is_agreed = True
        return True

    def _difference(self) -> str:
        """Who calls what, and where, in words."""
        callers: dict[str, list[int]] = {}
        for number, rank in enumerate(self._work.group.ranks):
            print_ = bytes(self._everyone[number * BYTES : (number + 1) * BYTES])
            call, site = (part.rstrip(b"\0").decode(errors="replace") for part in _cut(print_))
            callers.setdefault(f"{call} at {site}", []).append(rank)
        parts = [
            f"{ranks_in_words(ranks)} call{'s' if len(ranks) == 1 else ''} {what}"
            for what, ranks in callers.items()
        ]
        return (
            f"collective #{self._work.sequence} differs between the ranks: {'; '.join(parts)}. "
            "All ranks must make the same calls, in the same order"
        )


def _cut(print_: bytes) -> tuple[bytes, bytes]:
    return print_[:CALL_BYTES], print_[CALL_BYTES:]


def _call(work: Work, opts: Any) -> str:
    """What must be equal on all ranks."""
    tensors = work.tensors
    what = work.operation
    if what == "all_reduce" or what.startswith("reduce"):
        op = getattr(opts, "reduceOp", None)
        if op is not None and op != dist.ReduceOp.SUM:
            what = f"{what} {op.op.name}"
    if work.peer is not None:
        what = f"{what} with rank {work.group.ranks[work.peer]}"
    if not tensors:
        return what
    first = tensors[0]
    dtype = str(first.dtype)[6:]  # without "torch."
    if work.operation in FREE_SHAPES:
        return f"{what} ({dtype})"
    more = f" and {len(tensors) - 1} more" if len(tensors) > 1 else ""
    return f"{what} ({dtype} {list(first.shape)}{more})"


def ranks_in_words(ranks: list[int]) -> str:
    """For example "rank 1", or "ranks 0, 2, 3"."""
    return f"rank{'' if len(ranks) == 1 else 's'} {', '.join(map(str, ranks))}"
