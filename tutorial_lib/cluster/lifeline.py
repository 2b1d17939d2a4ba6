"""How a process learns, at once and without polling, that the one it serves has died.

A process holds a lock on a file as long as it lives; the system releases the lock however the
process ends. Whoever wants to end with it waits for that lock in a thread.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

LONGEST_WORD = 2**16


def hold(path: Path) -> int:
    """Hold the lifeline as long as this process lives.

    Args:
        path: Of the lock file, which is created.

    Returns:
        Its descriptor: keep it open.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def try_hold(path: Path) -> int | None:
    """Hold a lock file unless another process, or another part of this one, holds it.

    Args:
        path: Of the lock file, which is created.

    Returns:
        Its descriptor, to keep open; None when it is held already.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def is_held(path: Path) -> bool:
    """Whether the process that held the lifeline lives."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def leave_word(descriptor: int, reason: str) -> None:
    """Write into a lifeline why its holder ends.

    Args:
        descriptor: As ``hold`` returned it.
        reason: For whoever has the file open, even when it has been removed.
    """
    os.pwrite(descriptor, reason.encode(), 0)


class Watched:
    """Somebody else's lifeline, kept open: it tells the end, and why, after the file is gone.

    Args:
        path: Of the lock file, which the holder holds already.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY)

    def why_ended(self) -> str:
        """Why the holder has ended, "it has ended" if it has not said; "" while it lives."""
        if word := os.pread(self._descriptor, LONGEST_WORD, 0):
            return word.decode(errors="replace")
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return ""
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        return "it has ended"

    def close(self) -> None:
        """Watch no more."""
        os.close(self._descriptor)


def watch(path: Path, on_end: Callable[[], object]) -> None:
    """Call a function, in a thread of its own, when the holder of the lifeline has ended.

    Args:
        path: Of the lock file, which the holder holds already.
        on_end: What to call.
    """
    descriptor = os.open(path, os.O_RDONLY)

    def wait() -> None:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        on_end()

    threading.Thread(target=wait, name="lifeline", daemon=True).start()


def end_within(seconds: float, code: int) -> None:
    """End this process after a while, whatever it is doing then.

    Args:
        seconds: How long it may take to end by itself, in seconds.
        code: Its exit status if it has not.
    """

    def end() -> None:
        time.sleep(seconds)
        os._exit(code)

    threading.Thread(target=end, name="end_within", daemon=True).start()
