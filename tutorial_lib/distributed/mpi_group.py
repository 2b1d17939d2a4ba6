"""A process group of torch whose ranks talk through MPI."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
from mpi4py import MPI

from tutorial_lib.distributed import mpi_communicator, mpi_progress
from tutorial_lib.distributed.mpi_errors import CollectiveCancelledError, CollectiveError
from tutorial_lib.distributed.mpi_exchange import Exchange
from tutorial_lib.distributed.mpi_messages import Messages
from tutorial_lib.distributed.mpi_operation import Part
from tutorial_lib.distributed.mpi_pending import Pending
from tutorial_lib.distributed.mpi_reductions import Reductions
from tutorial_lib.distributed.mpi_work import BACKGROUND_BYTES, Work, is_in_backward

NAME = "mpi4py"

SMALL_BYTES = 4096
LARGE_MESSAGE_BYTES = 1 << 16  # MPI sends less at once, without the sender's further help

# Operations whose group is gone. MPI may still write to their tensors, so these must live.
_abandoned: list[Work] = []


class Group(Reductions, Exchange, Messages):
    """A process group over an MPI communicator of its own.

    Args:
        rank: This rank in the group.
        ranks: The members, as ranks of ``MPI.COMM_WORLD``; also torch's global ranks.
        name: torch's name for the group.
        timeout_s: How long an operation waits for the other ranks, in seconds.
        world: The default group; None makes this one.

    Attributes:
        sequence: How many collectives this rank has begun here. The ranks are in step when it
            is equal on all of them.
        observer: Called with each work just before it starts, to log it, or to compare
            fingerprints between ranks; None costs nothing.

    It carries nothing before ``open``.
    """

    def __init__(
        self,
        rank: int,
        ranks: Sequence[int],
        name: str,
        timeout_s: float,
        world: Group | None = None,
    ) -> None:
        super().__init__(rank, len(ranks))
        self.ranks = tuple(ranks)
        self.global_rank = self.ranks[rank]
        self.timeout_s = timeout_s
        self.world = world
        self.sequence = 0
        self.observer: Callable[[Work], None] | None = None
        self._name = name
        self._description = ""
        self._size = len(ranks)
        self._fault: tuple[type[CollectiveError], str] | None = None
        self._pending: dict[Work, None] = {}
        self._recent: deque[Work] = deque(maxlen=256)
        self._posting = threading.RLock()
        self._turning = threading.Lock()  # between in order and out of order
        self._comm: MPI.Comm = MPI.COMM_NULL

    def open(self) -> None:
        """Take a fresh communicator, and leave what was under way on the old one behind.

        An old one is not freed: MPI would give its number to a later one, and a message that
        nobody received here could be received there.

        **Distributed:** collective over the members.
        """
        with self._turning:
            self._fault = None
            works = list(self._pending)
        self._leave(works, CollectiveCancelledError, "the group has a new communicator since")
        if self.world is None:
            self._comm = mpi_communicator.duplicate_world(self.timeout_s, self.check)
        else:
            self._comm = mpi_communicator.subset(
                self.world._comm, self.ranks, self.timeout_s, self.check
            )
        self.sequence = 0

    def begin(
        self,
        operation: str,
        tensors: Sequence[torch.Tensor],
        parts: Sequence[Part],
        opts: Any,
        peer: int | None = None,
        result: Sequence[torch.Tensor] | None = None,
    ) -> Work:
        """Start an operation; see ``Operations``.

        Raises:
            CollectiveError: MPI refused it, or the group is out of order.
        """
        is_message = operation in ("send", "recv")
        timeout_s = self.timeout_s if opts is None else _timeout_s(opts, self.timeout_s)
        with self._posting:
            self.check()
            if len(self._pending) > 16:
                self._tidy()
            work = Work(
                self, operation, tensors, parts, timeout_s,
                None if is_message else self.sequence, peer, result,
            )  # fmt: skip
            self._pending[work] = None  # from here on its memory lives until MPI is done
            if self.observer is not None and not is_message:
                self.observer(work)
            try:
                work.post(self._comm)
            except Exception as error:
                text = f"MPI could not begin {work.describe()}: {error}"
                self._pending.pop(work)
                if work.has_begun:
                    _abandoned.append(work)
                    self.stop(CollectiveError, text)
                raise CollectiveError(text) from error
            except BaseException:
                self.stop(CollectiveCancelledError, f"it was interrupted as it began {operation}")
                raise
            if not is_message:
                self.sequence += 1
        if is_message or opts is None or opts.asyncOp:
            self._attend(work, is_message)
        return work

    def _attend(self, work: Work, is_message: bool) -> None:
        """Have a thread keep the data moving where that pays."""
        if is_message:
            is_worth = work.nbytes >= LARGE_MESSAGE_BYTES
        else:
            is_worth = not is_in_backward() or work.nbytes >= BACKGROUND_BYTES
        if is_worth and not work.test():
            mpi_progress.attend(work)

    def _tidy(self) -> None:
        """Finish what nobody waits for."""
        for work in list(self._pending):
            if not work.is_waited_for:
                work.advance()

    def forget(self, work: Work) -> None:
        """Let go of a work that has ended.

        torch may have kept only the C++ half of a handle (DDP's ``join`` does, of a one-element
        all-reduce), which without its Python half would wait for ever: small ones live on.
        """
        self._pending.pop(work, None)
        if not work.is_waited_for and work.nbytes <= SMALL_BYTES:
            self._recent.append(work)

    @property
    def is_open(self) -> bool:
        """Whether it has not been destroyed."""
        return self._comm != MPI.COMM_NULL

    def check(self) -> None:
        """Raise when the group is out of order.

        Raises:
            CollectiveError: Of the kind that stopped it: all ranks call ``renew()``.
        """
        if self._fault is not None:
            kind, reason = self._fault
            raise kind(f"rank {self.global_rank} cannot use group {self._name!r}: {reason}")

    def stop(self, kind: type[CollectiveError], reason: str) -> None:
        """Put the group out of order: whoever waits for it, in any thread, gets an error.

        Args:
            kind: Of error.
            reason: For people.
        """
        with self._turning:
            self._fault = (kind, reason)
            works = list(self._pending)
        self._leave(works, kind, reason)

    def _leave(self, works: list[Work], kind: type[CollectiveError], reason: str) -> None:
        for work in works:
            _abandoned.append(work)
            work.fail(kind(f"rank {self.global_rank} left {work.describe()}: {reason}"))

    def pending(self) -> list[Pending]:
        """What has started and not ended, oldest first. Any thread may ask."""
        return [work.describe() for work in list(self._pending)]

    def shutdown(self) -> None:
        """Let go of the communicator; called by ``destroy_process_group``. Waits for nobody.

        It is freed if all that began has ended well; see ``open``.
        """
        if self._fault is None and not self._pending and self.is_open:
            self._comm.Free()
        _abandoned.extend(self._pending)
        self._comm = MPI.COMM_NULL
        self._fault = (CollectiveError, "it was destroyed")

    def abort(self) -> None:
        """End all waits, then free the communicator."""
        self.stop(CollectiveCancelledError, "it was aborted")
        self.shutdown()

    # What torch asks of a group. torch's own answers need a C++ backend object inside.

    def size(self) -> int:
        """Number of members."""
        return self._size

    def set_timeout(self, timeout: timedelta) -> None:
        """Set how long operations wait for the other ranks."""
        self.timeout_s = timeout.total_seconds()

    _set_default_timeout = set_timeout

    @property
    def group_name(self) -> str:
        """What torch calls the group."""
        return self._name

    @property
    def group_desc(self) -> str:
        """What the group is for."""
        return self._description

    def _set_group_name(self, name: str) -> None:
        self._name = name

    def _set_group_desc(self, description: str) -> None:
        self._description = description

    def getGroupName(self) -> str:  # noqa: N802 - torch's name for it in C++
        """As ``group_name``."""
        return self._name

    def getBackendName(self) -> str:  # noqa: N802
        """As ``name``."""
        return NAME

    def name(self) -> str:
        """Of the backend."""
        return NAME

    def _get_sequence_number_for_group(self) -> int:
        return self.sequence

    def _set_sequence_number_for_group(self) -> None:
        pass  # every rank starts at 0

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device("cpu")]

    def _get_backend(self, device: torch.device) -> Group:
        return self  # for any device: tensors elsewhere are staged through the host

    supports_splitting = supports_coalescing = supports_time_estimate = False

    def supports_tensor_alloc(self, device: torch.device) -> bool:
        """No memory is faster than another here."""
        return False

    def __repr__(self) -> str:
        return f"<MPI group {self._name!r}: rank {self.rank()} of ranks {list(self.ranks)}>"


def _timeout_s(opts: Any, default_s: float) -> float:
    """The time-out in torch's options, where -1 ms means the group's own."""
    timeout: timedelta = opts.timeout
    return default_s if timeout.days < 0 else timeout.total_seconds()
