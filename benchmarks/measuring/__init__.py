"""Measure alternatives side by side, so that what disturbs a machine disturbs all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

Times = dict[str, list[float]]


def side_by_side(
    alternatives: Mapping[str, Callable[[], object]],
    rounds: int = 7,
    clock: Callable[[], float] = time.perf_counter,
) -> Times:
    """Return how many seconds each alternative took in each round.

    A round runs every alternative once, in turn; the first round, which warms caches, is left out.

    Args:
        alternatives: what to run, by name.
        rounds: how often.
        clock: in seconds. ``time.process_time`` is right for what keeps one core busy, and says
            the same on a machine that is shared.
    """
    times: Times = {name: [] for name in alternatives}
    for turn in range(rounds + 1):
        for name, run in alternatives.items():
            start_s = clock()
            run()
            if turn:
                times[name].append(clock() - start_s)
    return times


def print_rates(times: Times, amount: float, unit: str) -> None:
    """Print a table of rates: median, slowest and fastest round, and the ratio to the first row.

    Args:
        times: what ``side_by_side`` returned.
        amount: how much one run works through, in ``unit``.
        unit: of the amount; the table is in this per second.
    """
    width = max(map(len, times))
    heading = f"{unit}/s"
    print(f"{'':{width}} {heading:>14} {'slowest':>10} {'fastest':>10} {'ratio':>7}")
    first = statistics.median(next(iter(times.values())))
    for name, taken in times.items():
        median = statistics.median(taken)
        rates = (amount / median, amount / max(taken), amount / min(taken))
        ratio = first / median
        print(f"{name:{width}} {rates[0]:14.2f} {rates[1]:10.2f} {rates[2]:10.2f} {ratio:7.2f}")
