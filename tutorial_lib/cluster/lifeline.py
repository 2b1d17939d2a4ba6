"""How a process learns, at once and without polling, that the one it serves has died.

A process holds a lock on a file as long as it lives; the system releases the lock however the
process ends. Whoever wants to end with it waits for that lock in a thread.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path


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


def die_with_parent(parent: int | None = None) -> None:
    """Have the system send SIGTERM to this process when its parent ends; on Linux only.

    Args:
        parent: The parent's process id, to see whether it has ended already.
    """
    if sys.platform != "linux":
        return
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM, 0, 0, 0)
    if parent is not None and os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)


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
