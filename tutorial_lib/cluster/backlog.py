"""Calls that were given up although ranks still work on them."""

from __future__ import annotations

import time
from collections.abc import Iterable

from tutorial_lib.cluster.rank_call import RankCall, ignore

POLL_S = 0.1


class Backlog:
    """Calls without all their answers; a rank is stuck as long as it works on one of them."""

    def __init__(self) -> None:
        self._calls: list[RankCall] = []

    def add(self, call: RankCall) -> None:
        """Take in a call if ranks still work on it; what they print from now on is lost."""
        if call.pending:
            call.on_output = ignore
            self._calls.append(call)

    def stuck(self) -> list[int]:
        """The ranks that are stuck, as far as they have answered until now."""
        for call in self._calls:
            call.collect()
        self._calls = [call for call in self._calls if call.pending]
        return sorted({rank for call in self._calls for rank in call.pending})

    def settle(self, ranks: Iterable[int], timeout_s: float) -> list[int]:
        """Give stuck ranks some time to come back.

        Args:
            ranks: Whom to wait for.
            timeout_s: How long, in seconds.

        Returns:
            Those of them that are still stuck.
        """
        wanted = set(ranks)
        deadline = time.monotonic() + timeout_s
        while (left := wanted.intersection(self.stuck())) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        return sorted(left)
