"""Which rank died first, and why, from the wardens' notes."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from typing import Any

POLL_S = 0.02

LIKELY_CAUSES = {
    signal.SIGKILL: "killed from outside; out of memory?",
    signal.SIGSEGV: "a memory error in native code",
    signal.SIGABRT: "native code gave up",
    signal.SIGBUS: "a memory error; is /dev/shm full?",
    signal.SIGILL: "native code for another processor",
    signal.SIGTERM: "told to end",
}


def first_death(
    endings: Callable[[], Mapping[int, Mapping[str, Any]]], rank: int, timeout_s: float = 2.0
) -> tuple[int, str]:
    """Find out which rank died first: mpiexec kills the others after it.

    Args:
        endings: Reads the wardens' notes, by rank, as ``ClusterFolder.endings`` does.
        rank: Whose end was seen first from here.
        timeout_s: How long to wait for the note of that rank, in seconds.

    Returns:
        The rank, and why it ended, for example "SIGKILL: killed from outside; out of memory?" or
        "exit status 3: it ended by itself"; empty when there is no note.
    """
    deadline = time.monotonic() + timeout_s
    while rank not in (notes := endings()) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    if not notes:
        return rank, ""
    first = earliest(notes)
    return first, in_words(notes[first]["code"])


def earliest(notes: Mapping[int, Mapping[str, Any]]) -> int:
    """The rank that ended first.

    Args:
        notes: The wardens' notes, by rank; at least one.
    """
    return min(notes, key=lambda rank: float(notes[rank]["time"]))


def in_words(code: int) -> str:
    """How a process ended, and the likely cause.

    Args:
        code: Its exit status, or the negative number of the signal that ended it.
    """
    if code >= 0:
        return f"exit status {code}: it ended by itself"
    try:
        known = signal.Signals(-code)
    except ValueError:
        return f"signal {-code}"
    cause = LIKELY_CAUSES.get(known)
    return f"{known.name}: {cause}" if cause else known.name
