"""A thread that keeps data moving while the main thread computes.

MPI moves data only inside its calls. An operation that nobody waits for is therefore polled from
here, when MPI allows calls from several threads at once (``MPI_THREAD_MULTIPLE``, what mpi4py
asks for). The thread starts with the first such operation and sleeps when there is none.
"""

from __future__ import annotations

import atexit
import threading
import time
from typing import Protocol

from mpi4py import MPI

from tutorial_lib.distributed.mpi_wait import MOVED_S

SHORTEST_PAUSE_S = 0.0005
LONGEST_PAUSE_S = 0.02


class Polled(Protocol):
    """What the thread can poll."""

    is_waited_for: bool

    def advance(self) -> bool:
        """Poll once; whether there is nothing left to poll."""
        ...


def has_threads() -> bool:
    """Whether MPI allows calls from several threads at once."""
    return MPI.Query_thread() == MPI.THREAD_MULTIPLE


def attend(work: Polled) -> bool:
    """Have the thread poll an operation until it ends.

    Args:
        work: The operation. While somebody waits for it, its waiter polls it.

    Returns:
        Whether there is such a thread; otherwise the caller must poll.
    """
    if not has_threads():
        return False
    _progress.attend(work)
    return True


def dismiss(work: Polled) -> None:
    """Poll an operation no more: it has ended."""
    _progress.works.pop(work, None)


class Progress:
    """The thread and what it polls.

    Attributes:
        works: What it polls; any thread may add and remove.
    """

    def __init__(self) -> None:
        self.works: dict[Polled, None] = {}
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._is_stopping = False
        self._busy = 0.0  # when something last began or moved

    def attend(self, work: Polled) -> None:
        """Poll an operation until it ends."""
        self._busy = time.perf_counter()
        self.works[work] = None
        self._wake.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="mpi-progress", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End the thread: MPI must not be called once it is finalised."""
        self._is_stopping = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            self._wake.clear()  # before the look at what it may have announced
            if self._is_stopping:
                return
            has_moved = self._poll()
            now = time.perf_counter()
            if has_moved:
                self._busy = now
            elif self.works:
                self._wake.wait(
                    min(max((now - self._busy) / 50, SHORTEST_PAUSE_S), LONGEST_PAUSE_S)
                )
            else:
                self._wake.wait()

    def _poll(self) -> bool:
        """Poll all; whether data moved."""
        has_moved = False
        for work in list(self.works):
            if work.is_waited_for:
                continue
            before = time.perf_counter()
            if work.advance():
                self.works.pop(work, None)
            has_moved = has_moved or time.perf_counter() - before > MOVED_S
        return has_moved


_progress = Progress()
atexit.register(_progress.stop)
