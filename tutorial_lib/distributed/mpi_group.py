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
from tutorial_lib.distributed.fingerprint import Fingerprint
from tutorial_lib.distributed.mpi_errors import (
    CollectiveCancelledError,
    CollectiveError,
)
from tutorial_lib.distributed.mpi_exchange import Exchange
from tutorial_lib.distributed.mpi_identity import Identity
from tutorial_lib.distributed.mpi_messages import Messages
from tutorial_lib.distributed.mpi_operation import Part
from tutorial_lib.distributed.mpi_pending import Pending
from tutorial_lib.distributed.mpi_reductions import Reductions
from tutorial_lib.distributed.mpi_work import BACKGROUND_BYTES, Work, is_in_backward

SMALL_BYTES = 4096
LARGE_MESSAGE_BYTES = 1 << 16  # MPI sends less at once, without the sender's further help

# Operations whose group is gone. MPI may still write to their tensors, so these must live.
_abandoned: list[Work] = []


class Group(Reductions, Exchange, Messages, Identity):
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
        is_checked: Whether the ranks compare what they call before any data moves.
        observer: Called with each work just before it starts, to log it; None costs nothing.

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
        self.is_checked: bool = False if world is None else world.is_checked
        self.observer: Callable[[Work], None] | None = None
        self._name = name
        self._size = len(ranks)
        self._fault: tuple[type[CollectiveError], str] | None = None
        self._pending: dict[Work, None] = {}
        self._recent: deque[Work] = deque(maxlen=256)
        self._posting = threading.RLock()
        self._turning = threading.Lock()  # between in order and out of order
        self._comm: MPI.Comm = MPI.COMM_NULL
        self._calls: MPI.Comm = MPI.COMM_NULL  # for fingerprints, which go ahead of the data
        self._unagreed: deque[Work] = deque()
        self._agreeing = threading.Lock()

    def open(self) -> None:
        """Take a fresh communicator, and leave what was under way on the old one behind.

        An old one is not freed: MPI would give its number to a later one, and a message that
        nobody received here could be received there.

        Raises:
            CollectiveError: The default group is out of order, or this one was stopped meanwhile.

        **Distributed:** collective over the members.
        """
        with self._turning:
            if self.world is not None:
                self.world.check()  # whoever cancels stops it first
            self._fault = None
            works = list(self._pending)
        self._leave(works, CollectiveCancelledError, "the group has a new communicator since")
        self._unagreed = deque()
        self._comm = self._fresh_communicator()
        self._calls = self._fresh_communicator() if self.is_checked else MPI.COMM_NULL
        self.sequence = 0

    def _fresh_communicator(self) -> MPI.Comm:
        if self.world is None:
            return mpi_communicator.duplicate_world(self.timeout_s, self.check)
        return mpi_communicator.subset(self.world._comm, self.ranks, self.timeout_s, self.check)

    def check_calls(self, is_on: bool) -> None:
        """Compare what the ranks call from now on, or stop doing so. Collective."""
        if is_on and self._calls == MPI.COMM_NULL:
            self._calls = self._fresh_communicator()
        self.is_checked = is_on

    def post_agreed(self) -> None:
        """Let the data of collectives move that all ranks have called alike, in their order.

        Raises:
            CollectiveMismatchError: The ranks call different things.
            CollectiveError: MPI refused one.
        """
        with self._agreeing:
            while self._unagreed:
                work = self._unagreed[0]
                try:
                    if work.fingerprint is None or not work.fingerprint.is_agreed():
                        return
                    self._unagreed.popleft()
                    work.post(self._comm)
                except CollectiveError:
                    raise
                except Exception as error:
                    raise CollectiveError(
                        f"MPI could not begin {work.describe()}: {error}"
                    ) from error
                except BaseException:
                    # The next one must not go out in its place.
                    self._unagreed.clear()
                    self._fault = (
                        CollectiveCancelledError,
                        f"it was interrupted as it began {work.operation}",
                    )
                    raise

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
            if len(self._pending) > 16:
                self._tidy()
            work = Work(
                self, operation, tensors, parts, timeout_s,
                None if is_message else self.sequence, peer, result,
            )  # fmt: skip
            self._pending[work] = None  # from here on its memory lives until MPI is done
            if self._fault is not None:  # not before: ``stop`` must find the work or be seen here
                self._pending.pop(work, None)
                self.check()
            if not is_message:
                if self.is_checked:
                    work.fingerprint = Fingerprint(work, opts)
                if self.observer is not None:
                    self.observer(work)
            try:
                if work.fingerprint is None:
                    work.post(self._comm)
                else:
                    work.fingerprint.post(self._calls)
                    self._unagreed.append(work)  # not before: another thread may test it now
            except Exception as error:
                text = f"MPI could not begin {work.describe()}: {error}"
                self._pending.pop(work, None)
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

    def stop_after(self, work: Work, error: CollectiveError) -> None:
        """Put the group out of order because a collective could not go out to the other ranks.

        Args:
            work: It, or one that waited for it; MPI may still write to its tensors.
            error: Why.
        """
        _abandoned.append(work)
        self.stop(type(error), str(error))

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
            if self._calls != MPI.COMM_NULL:
                self._calls.Free()
        _abandoned.extend(self._pending)
        self._comm = self._calls = MPI.COMM_NULL
        self._fault = (CollectiveError, "it was destroyed")

    def abort(self) -> None:
        """End all waits, then free the communicator."""
        self.stop(CollectiveCancelledError, "it was aborted")
        self.shutdown()

    def __repr__(self) -> str:
        return f"<MPI group {self._name!r}: rank {self.rank()} of ranks {list(self.ranks)}>"


def _timeout_s(opts: Any, default_s: float) -> float:
    """The time-out in torch's options, where -1 ms means the group's own."""
    timeout: timedelta = opts.timeout
    return default_s if timeout.days < 0 else timeout.total_seconds()
