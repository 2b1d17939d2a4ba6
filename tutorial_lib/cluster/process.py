"""What a process of a cluster asks of the system, about itself and about others."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def send_signal(pid: int, number: int) -> None:
    """Send a signal to a process, if it is there and takes it.

    Args:
        pid: The process.
        number: The signal.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def print_to(path: Path) -> None:
    """Send everything that this process and its libraries print to the end of a file.

    Args:
        path: Of the file, which only this user may read.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    os.close(descriptor)


def die_with_parent(parent: int | None = None, number: int = signal.SIGTERM) -> None:
    """Have the system send a signal to this process when its parent ends; on Linux only.

    Args:
        parent: The parent's process id, to see whether it has ended already.
        number: The signal.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)
    if parent is not None and os.getppid() != parent:
        os.kill(os.getpid(), number)


def adopt_orphans() -> None:
    """Become the parent of grandchildren whose parent dies, so that none is lost; on Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
