"""One operation under way: what torch waits for, asks about, and chains futures to."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from copy import copy
from datetime import timedelta
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from mpi4py import MPI

from tutorial_lib.distributed import mpi_progress, trace
from tutorial_lib.distributed.mpi_errors import (
    CollectiveError,
    CollectiveTimeoutError,
)
from tutorial_lib.distributed.mpi_future import PolledFuture
from tutorial_lib.distributed.mpi_pending import Pending
from tutorial_lib.distributed.mpi_wait import Pace

if TYPE_CHECKING:
    from tutorial_lib.distributed.fingerprint import Fingerprint
    from tutorial_lib.distributed.mpi_group import Group
    from tutorial_lib.distributed.mpi_operation import Part

NO_TIMEOUT = timedelta(0)  # torch's way to say "the group's own"
BACKGROUND_BYTES = 1 << 20  # in a backward, less than this is not worth waking a thread

_engine = torch.autograd.Variable._execution_engine


class Work(dist.Work):
    """An operation under way.

    torch's own C++ calls ``wait`` and ``get_future`` (DDP's reducer calls the latter); the
    rest is for Python. Any thread may call any method.

    Args:
        group: Whose operation it is.
        operation: torch's name for it.
        tensors: What it moves.
        parts: What to do.
        timeout_s: How long ``wait`` waits, in seconds.
        sequence: Number of the collective in its group; None for send and recv.
        peer: Group rank of the root, sender or receiver.
        result: What ``result`` and the future return; None for the tensors.
    """

    def __init__(
        self,
        group: Group,
        operation: str,
        tensors: Sequence[torch.Tensor],
        parts: Sequence[Part],
        timeout_s: float,
        sequence: int | None,
        peer: int | None,
        result: Sequence[torch.Tensor] | None,
    ) -> None:
        super().__init__()
        self.group = group
        self.operation = operation
        self.tensors = tensors
        self.timeout_s = timeout_s
        self.sequence = sequence
        self.peer = peer
        self.is_done = False
        self.is_waited_for = False
        self.failure: Exception | None = None
        self.interrupt: BaseException | None = None  # what struck while futures completed
        self.fingerprint: Fingerprint | None = None  # to agree on before data moves
        self._is_held = False
        self._parts = parts
        self._result = tensors if result is None else result
        self._posted: list[MPI.Request] = []
        self._requests: list[MPI.Request] | None = None  # None until all are posted
        self._status = MPI.Status() if operation == "recv" else None
        self._future: PolledFuture | None = None
        self._begun = perf_counter()
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        """Of all tensors, in bytes."""
        return sum(tensor.nbytes for tensor in self.tensors)

    def post(self, comm: MPI.Comm) -> None:
        """Start it."""
        requests = self._posted
        for part in self._parts:
            posted = part.post(comm)
            requests += posted if isinstance(posted, list) else [posted]
        self._requests = requests

    @property
    def has_begun(self) -> bool:
        """Whether any of it has started."""
        return bool(self._posted)

    def test(self) -> bool:
        """Poll once, and finish the operation when it is complete; whether it has ended."""
        if not self.is_done:
            self._poll(settles_held=True)
        return self.is_done

    def advance(self) -> bool:
        """As ``test`` for who does not wait for it; whether there is nothing left to poll.

        A future taken within a backward is completed at the backward's end, in order: what is
        chained to it may begin another collective, and that must be the same on all ranks.
        """
        return self.is_done or self._poll(settles_held=False)

    def _poll(self, settles_held: bool) -> bool:
        with self._lock:  # a request may be tested by one thread at a time
            try:
                if self.is_done or not self._is_complete():
                    return self.is_done
                if settles_held or not self._is_held:
                    for part in self._parts:
                        if part.finish is not None:
                            part.finish()
                    self._settle(None)
            except MPI.Exception as error:
                self._settle(CollectiveError(f"MPI could not do {self.describe()}: {error}"))
            except Exception as error:
                self._settle(error)
                if isinstance(error, CollectiveError):  # of post_agreed: none can go out any more
                    self.group.stop_after(self, error)
            return True

    def _is_complete(self) -> bool:
        if self._requests is None and self.fingerprint is not None:
            self.group.post_agreed()
        requests = self._requests
        if requests is None:
            return False
        if len(requests) == 1:
            return requests[0].Test(self._status)
        return MPI.Request.Testall(requests)

    def fail(self, error: Exception) -> None:
        """End the wait with an error; MPI may still write to the tensors."""
        if self.is_done:
            return  # its lock may be held by a callback that waits for another
        with self._lock:
            if not self.is_done:
                self._settle(error)

    def _settle(self, failure: Exception | None) -> None:
        """Tell everybody. The lock is held."""
        self.failure = copy(failure)  # without its frames, which hold their callers' values
        self.is_done = True
        if failure is None:
            self._parts = ()
        self.group.forget(self)
        mpi_progress.dismiss(self)
        self._settle_future()

    def _settle_future(self) -> None:
        """Complete the future, if there is one that waits for it. The lock is held."""
        future, self._future = self._future, None
        if future is not None:
            future.settle()

    def wait(self, timeout: timedelta = NO_TIMEOUT) -> bool:
        """Wait until the operation is complete, polling, so that Ctrl-C and ``cancel`` get in.

        Args:
            timeout: How long; zero means the group's own time-out. After the latter the group
                is unusable; after one given here, wait again if you like.

        Returns:
            True.

        Raises:
            CollectiveTimeoutError: The other ranks did not come in time.
            CollectiveCancelledError: ``cancel`` was called.
            CollectiveMismatchError: The ranks compare their calls, and made different ones.
            CollectiveError: MPI failed.
        """
        if not self.is_done:
            self._wait(max(timeout.total_seconds(), 0))
        elif trace.listeners:
            self._tell(perf_counter())  # it came meanwhile, but others may have waited for us
        if self._future is not None:  # of a backward, and taken after the end
            with self._lock:
                self._settle_future()
        if self.failure is not None:
            raise copy(self.failure)  # or it would collect the frames of all who read it
        return True

    def _wait(self, timeout_s: float) -> None:
        pace = Pace()
        waiting = pace.now
        deadline = waiting + (timeout_s or self.timeout_s)
        try:
            self.is_waited_for = True
            while not self.test():
                if pace.pause() > deadline:
                    self._time_out(timeout_s)
        except KeyboardInterrupt:
            mpi_progress.attend(self)  # the wait is given up, the operation cannot be
            raise
        finally:
            self.is_waited_for = False
            if trace.listeners:
                self._tell(waiting)

    def _tell(self, waiting: float) -> None:
        trace.tell(
            trace.Waited(
                self.group.ranks, self.sequence, self.operation, self.nbytes,
                self._begun, waiting, perf_counter(),
            )
        )  # fmt: skip

    def _time_out(self, timeout_s: float) -> None:
        text = (
            f"rank {self.group.global_rank} waited {timeout_s or self.timeout_s:g} s in "
            f"{self.describe()}: not all other ranks came. Look where they are. If one is only "
            "slow, open the group with a longer time-out"
        )
        if not timeout_s:
            self.group.stop(CollectiveTimeoutError, text)
        raise CollectiveTimeoutError(text)

    def _end_backward(self) -> None:
        self.wait()
        if self.interrupt is not None:
            raise self.interrupt

    def describe(self) -> Pending:
        """What this is, for people."""
        tensors, group = self.tensors, self.group
        first = tensors[0] if tensors else None
        return Pending(
            group=group.group_name,
            ranks=group.ranks,
            operation=self.operation,
            sequence=self.sequence,
            peer=None if self.peer is None or self.peer < 0 else group.ranks[self.peer],
            dtype="" if first is None else str(first.dtype).removeprefix("torch."),
            shape=() if first is None else tuple(first.shape),
            nbytes=self.nbytes,
            age_s=perf_counter() - self._begun,
            timeout_s=self.timeout_s,
            is_waited_for=self.is_waited_for,
            site="" if self.fingerprint is None else self.fingerprint.site,
        )

    def is_completed(self) -> bool:
        """Whether it has ended, well or not. Polls once."""
        return self.test()

    def is_success(self) -> bool:
        """Whether it has ended well."""
        return self.is_done and self.failure is None

    def exception(self) -> Exception | None:
        """What it ended with, if not well."""
        return copy(self.failure)

    def result(self) -> list[torch.Tensor]:
        """The tensors."""
        return list(self._result)

    def synchronize(self) -> None:
        """As ``wait``: on the CPU there is no stream to order."""
        self.wait()

    def source_rank(self) -> int:
        """Group rank of the sender of what a recv got."""
        if self._status is None:
            raise ValueError(f"{self.operation} has no sender: only recv has")
        return self._status.Get_source()

    _source_rank = source_rank

    def get_future(self) -> torch.futures.Future[Any]:
        """A future of the tensors.

        Within a backward (DDP's reducer, communication hooks) the backward itself waits for it,
        polling, when all gradients are there and before anybody reads them. Elsewhere a
        thread completes it.

        Raises:
            CollectiveError: The operation has already failed; within a backward its end says so.
        """
        future = PolledFuture(self)
        # Within a node of the graph there is still time; past the last (a static graph's first
        # reductions, or what is chained to a future) C++ waits right after this.
        is_held = is_in_backward() and torch._C._current_autograd_node() is not None
        with self._lock:
            # Once the lock is free, a thread may complete the work, and then this future too.
            if self._future is not None:
                return self._future
            was_done = self.is_done
            if is_held or not was_done:
                self._future, self._is_held = future, is_held
        if is_held:
            _engine.queue_callback(self._end_backward)
        elif was_done:
            self.wait()  # raises if it failed: DDP's C++ cannot read a failed Python future
            future.settle()
        elif is_in_backward() or not mpi_progress.attend(self):
            self.wait()
        return future


def is_in_backward() -> bool:
    """Whether this thread runs a backward now."""
    return bool(torch._C._current_graph_task_id() != -1)
