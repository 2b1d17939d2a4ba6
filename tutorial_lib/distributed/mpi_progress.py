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

    def test(self) -> bool:
        """Poll once; whether it has ended."""
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


class Progress:
    """The thread and what it polls."""

    def __init__(self) -> None:
        self._works: list[Polled] = []
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._is_stopping = False

    def attend(self, work: Polled) -> None:
        """Poll an operation until it ends."""
        with self._lock:
            self._works.append(work)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="mpi-progress", daemon=True)
                self._thread.start()
        if not self._wake.is_set():
            self._wake.set()

    def stop(self) -> None:
        """End the thread: MPI must not be called once it is finalised."""
        self._is_stopping = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        busy = time.perf_counter()
        while not self._is_stopping:
            if not self._wake.is_set():
                self._wake.wait()
                busy = time.perf_counter()
            moved = False
            for work in list(self._works):
                before = time.perf_counter()
                if not work.is_waited_for and not work.test():
                    moved = moved or time.perf_counter() - before > MOVED_S
            with self._lock:
                self._works = [work for work in self._works if not _is_over(work)]
                if not self._works and not self._is_stopping:
                    self._wake.clear()
            now = time.perf_counter()
            if moved:
                busy = now
            else:
                time.sleep(min(max((now - busy) / 50, SHORTEST_PAUSE_S), LONGEST_PAUSE_S))


def _is_over(work: Polled) -> bool:
    return not work.is_waited_for and work.test()


_progress = Progress()
atexit.register(_progress.stop)
