"""Waiting without freezing: poll, give the core away, and look up for time-outs and cancels."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

# How far apart ranks that take the same step arrive, more or less. To sleep so long and wake up
# again costs more than to spin, if nobody else wants the core.
SPIN_S = 0.002
CROWDED_S = 0.0001  # a turn that took longer gave the core to somebody who had work for it
SHORTEST_PAUSE_S = 0.00002
LONGEST_PAUSE_S = 0.001  # so that a wait of seconds takes hardly any of a core
MOVED_S = 5e-6  # a poll that took longer moved data

if hasattr(os, "sched_yield"):
    give_way = os.sched_yield
else:

    def give_way() -> None:
        """Let another thread or process have the core."""
        time.sleep(0)


class Pace:
    """How a wait spends the time between two polls.

    MPI moves data only while it is polled, so a wait in which data moves never sleeps. One in
    which nothing happens (the others are not there yet) spins a little, giving its core away
    at every turn, then sleeps longer and longer, by 2 % of the time it has been idle. Where
    somebody took the core, it sleeps at once: on a busy machine who spins, even giving way, gets
    its core back later than who sleeps.
    """

    def __init__(self) -> None:
        self.now = self.polled = self.moved = time.perf_counter()
        self.spin_s = SPIN_S

    def pause(self) -> float:
        """Pass the time until the next poll is due; return the time in seconds."""
        now = time.perf_counter()
        if now - self.polled > MOVED_S:
            self.moved = now
        idle_s = now - self.moved
        if idle_s < self.spin_s:
            give_way()
            self.polled = time.perf_counter()
            if self.polled - now > CROWDED_S:
                self.spin_s = 0.0
        else:
            time.sleep(min(max(idle_s / 50, SHORTEST_PAUSE_S), LONGEST_PAUSE_S))
            self.polled = time.perf_counter()
        return self.polled


def wait_until(
    is_done: Callable[[], object], timeout_s: float, check: Callable[[], None] | None = None
) -> bool:
    """Poll until something is done.

    Args:
        is_done: Polled until it returns something true.
        timeout_s: How long to wait, in seconds.
        check: Called at every turn; raises to end the wait.

    Returns:
        Whether it was done in time.
    """
    pace = Pace()
    deadline = pace.now + timeout_s
    while not is_done():
        if check is not None:
            check()
        if pace.pause() > deadline:
            return False
    return True
