"""What the threads of a controller do, when it is suspected to hang."""

from __future__ import annotations

import contextlib
import signal
import time
from pathlib import Path

import psutil

MODULE = "tutorial_lib.cluster.controller"
WAIT_S = 2.0
POLL_S = 0.05


def read(pid: int, log: Path) -> str:
    """Have a controller write its threads' stacks into its log, and read them there.

    Args:
        pid: Its process.
        log: Its log.

    Returns:
        The stacks, as ``faulthandler`` writes them; "" when there is no such process any more.
    """
    text = ""
    with contextlib.suppress(psutil.Error, OSError):
        controller = psutil.Process(pid)
        if MODULE not in controller.cmdline():  # another process has got its number
            return ""
        begin = log.stat().st_size
        controller.send_signal(signal.SIGUSR1)
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            time.sleep(POLL_S)
            before, text = text, _from(log, begin)
            if text and text == before:
                break
    return text


def _from(log: Path, begin: int) -> str:
    with log.open("rb") as file:
        file.seek(begin)
        return file.read().decode(errors="replace").strip()
