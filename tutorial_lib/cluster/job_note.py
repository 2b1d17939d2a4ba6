"""What is known of the batch job that holds a cluster's ranks, kept in the cluster's folder."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from tutorial_lib.cluster.runtime import ClusterFolder, write_private

FILE = "job.json"
JOB = "job "  # so the reason begins when a job has been ended from outside
NEWS_S = 6.0  # for the launcher to ask about a job whose ranks have ended, and to tell
POLL_S = 0.05


@dataclass(frozen=True)
class JobNote:
    """A batch job at one moment.

    Attributes:
        text: How it is, for a reader: "job 17 waits in the queue (Resources: ...)".
        is_waiting: Whether it has not started yet, so that no limit of starting runs.
        why_ended: Why it ended, when that is not because its ranks did: "job 17 was cancelled".
    """

    text: str = ""
    is_waiting: bool = False
    why_ended: str = ""


def write(folder: ClusterFolder, note: JobNote) -> None:
    """Keep a note.

    Args:
        folder: The cluster's.
        note: In place of the one before.
    """
    with contextlib.suppress(FileNotFoundError):  # the cluster is gone
        write_private(folder.path / FILE, json.dumps(asdict(note)))


def read(folder: ClusterFolder) -> JobNote:
    """The last note; an empty one if there is none.

    Args:
        folder: The cluster's.
    """
    try:
        return JobNote(**json.loads((folder.path / FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return JobNote()


class StartLimit:
    """How long starting may take; time in which a job waits in a queue doesn't count.

    Args:
        timeout_s: How long, in seconds.
        folder: Of a cluster whose ranks are a job; None for one whose ranks are none.
    """

    def __init__(self, timeout_s: float, folder: ClusterFolder | None) -> None:
        self._timeout_s = timeout_s
        self._folder = folder
        self._deadline = time.monotonic() + timeout_s

    def look(self) -> str:
        """What the job waits for, or "" when there is none, or it waits no more."""
        note = read(self._folder) if self._folder is not None else JobNote()
        if note.is_waiting:
            self._deadline = time.monotonic() + self._timeout_s
            return note.text
        return ""

    @property
    def left_s(self) -> float:
        """How many seconds are left; below 0 when it is over."""
        return self._deadline - time.monotonic()


def cause(
    death: tuple[int, str], why_ended: Callable[[], str], timeout_s: float = NEWS_S
) -> tuple[int, str]:
    """Tell ranks that died by themselves from a job that was ended from outside.

    Args:
        death: The rank that died first, and why, as far as its host knows.
        why_ended: Says why the cluster has ended, or "" while it lives.
        timeout_s: How long to wait for that, in seconds.

    Returns:
        The rank, and the better reason: "job 17 was cancelled", or what its host knows.
    """
    deadline = time.monotonic() + timeout_s
    while not (why := why_ended()) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return (death[0], why) if why.startswith(JOB) else death
