"""Says live why a cell does not go on: who waits for whom, and where the others are."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tutorial_lib.cluster.control_channel import ANSWER_S, ControlChannel
from tutorial_lib.cluster.live_line import LiveLine
from tutorial_lib.cluster.whereabouts import Whereabouts, read

LOOKS_PER_LIMIT = 6
LONGEST_S, SHORTEST_S = 5.0, 0.2  # between two looks
GLANCE_S = 0.3  # for answers before the limit: an error that comes meanwhile must not wait long


@dataclass
class HangWatch:
    """Looks at the ranks from time to time while a cell runs.

    Attributes:
        control: To all ranks of the cluster: one that the cell is not for may be waited for.
        limit_s: How long a rank may wait in a collective before something is said, in seconds.
        timeout_s: How long it may wait until that is an error, in seconds.
    """

    control: ControlChannel
    limit_s: float
    timeout_s: float
    line: LiveLine = field(default_factory=LiveLine)
    _began: float = field(default_factory=time.monotonic)
    _looked: float = 0.0
    _seen: dict[int, tuple[object, float]] = field(default_factory=dict)
    _last: str = ""

    def look(self, on_timeout: Callable[[str], object]) -> None:
        """Look, if it is time to, and say what is wrong, if anything is.

        Args:
            on_timeout: Called with an explanation when a wait has lasted as long as it may.
        """
        now = time.monotonic()
        limit_s = min(self.limit_s, self.timeout_s)
        period_s = min(max(limit_s / LOOKS_PER_LIMIT, SHORTEST_S), LONGEST_S)
        if now - max(self._began, self._looked) < period_s:
            return
        patience_s = GLANCE_S if now - self._began < limit_s else ANSWER_S
        where = read(self.control.ask("where", None, patience_s), self.control.engines)
        self._looked = time.monotonic()
        waits_s = self._ages(where, now)
        longest_s = max(waits_s.values(), default=0.0)
        if longest_s < limit_s:
            return
        explanation = where.summary()
        # Where no line can change in place, the first is the only one.
        show = self.line.show if self._last else self.line.end
        show(f"Waiting for {longest_s:.0f} s: {explanation}.")
        self._last = f"Waited for {longest_s:.0f} s: {explanation}."
        if longest_s > self.timeout_s:
            on_timeout(f"it waited {longest_s:.0f} s: {explanation}")

    def end(self) -> None:
        """The cell has ended: leave no line that says it still waits."""
        if self._last:
            self.line.show(self._last)

    def _ages(self, where: Whereabouts, now: float) -> dict[int, float]:
        """How long each waiting rank has waited, or has been seen to, if its backend can't tell."""
        ages = {}
        for rank, place in where.items():
            if (wait := place.wait) is None:
                self._seen.pop(rank, None)
                continue
            same = (wait.operation, wait.sequence, place.stack)
            if rank not in self._seen or self._seen[rank][0] != same:
                self._seen[rank] = (same, now)
            ages[rank] = max(wait.age_s, now - self._seen[rank][1])
        return ages
