"""How much a rank may print into the notebook: enough to read, while its log has all of it."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

BURST_CHARACTERS = 200_000  # at once: some 4,000 lines
CHARACTERS_S = 20_000  # and so many a second in the long run
RESUME_CHARACTERS = 20_000  # to be had before showing goes on, so that it does so in long stretches
TAIL_LINES = 5  # of what was left out, shown when the work ends
LOG_FLUSH_S = 0.5

_limits: list[OutputLimit] = []


class OutputLimit:
    """Passes text on to a stream as long as that is not too much, and all of it to a log.

    What is left out is whole lines. A line says how many, and the last ones are shown in any case.

    Args:
        write: Of the stream to the notebook.
        log: The rank's log.
        rank: This rank.
        clock: Seconds, for tests.
    """

    def __init__(
        self,
        write: Callable[[str], Any],
        log: TextIO | None,
        rank: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pass_on = write
        self._log = log
        self._rank = rank
        self._clock = clock
        self._lock = threading.RLock()
        self._budget = float(BURST_CHARACTERS)
        self._counted_at = self._logged_at = clock()
        self._is_closed = False
        self._lines_left_out = 0
        self._tail: deque[str] = deque(maxlen=2 * TAIL_LINES)  # print writes a line and its end

    def write(self, text: str) -> int:
        """Take text; as a stream's own ``write``."""
        with self._lock:
            now = self._clock()
            self._write_log(text, now)
            grown = self._budget + CHARACTERS_S * (now - self._counted_at)
            self._budget, self._counted_at = min(grown, BURST_CHARACTERS), now
            if self._is_closed:
                self._leave_out(text)
                if self._budget >= RESUME_CHARACTERS and text.endswith("\n"):
                    self._reopen()
                return len(text)
            shown = text
            if len(text) > self._budget:
                shown = text[: text.find("\n", int(max(self._budget, 0))) + 1] or text
                if shown.endswith("\n"):  # a line that is not at its end goes on
                    self._is_closed = True
                    if rest := text[len(shown) :]:
                        self._leave_out(rest)
            self._budget -= len(shown)
            self._pass_on(shown)
        return len(text)

    def finish(self) -> None:
        """Show the end of what was left out: the work is done."""
        with self._lock:
            if self._is_closed:
                self._reopen()
            if self._log is not None:
                self._log.flush()

    def _reopen(self) -> None:
        tail = "".join(self._tail).splitlines(keepends=True)[-TAIL_LINES:]
        left_out = self._lines_left_out - sum(line.endswith("\n") for line in tail)
        if left_out > 0:
            self._pass_on(
                f"... {left_out:,} lines left out: the file ranks.logs[{self._rank}] has them ...\n"
            )
        self._pass_on("".join(tail))
        self._is_closed = False
        self._lines_left_out = 0
        self._tail.clear()

    def _leave_out(self, text: str) -> None:
        self._lines_left_out += text.count("\n")
        self._tail.append(text[-10_000:])

    def _write_log(self, text: str, now: float) -> None:
        if self._log is None:
            return
        try:
            self._log.write(text)
            if now - self._logged_at > LOG_FLUSH_S:
                self._log.flush()
                self._logged_at = now
        except (OSError, UnicodeError):  # a full disk must not end the reader's work
            self._log = None


def install(rank: int, path: str) -> None:
    """Limit what this process prints from now on; again does no harm.

    Args:
        rank: This rank.
        path: Of its log; "" for none.
    """
    if _limits:
        return
    # Not our file descriptor 1: ipykernel brings that to the notebook too.
    log = Path(path).open("a", encoding="utf-8") if path else None  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        limit = OutputLimit(stream.write, log, rank)
        _limits.append(limit)
        stream.write = limit.write  # type: ignore[method-assign]


def finish() -> None:
    """Show the end of what this process's streams have left out."""
    for limit in _limits:
        limit.finish()
