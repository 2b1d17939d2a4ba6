"""Measure alternatives side by side, so that what disturbs a machine disturbs all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from tutorial_lib.display.picture import Picture

RESULTS = Path(__file__).parents[1] / "results"

Times = dict[str, list[float]]


def side_by_side(
    alternatives: Mapping[str, Callable[[], object]],
    rounds: int = 7,
    clock: Callable[[], float] = time.perf_counter,
    repeats: int = 1,
    before: Callable[[], object] = lambda: None,
) -> Times:
    """Return how many seconds each alternative took in each round.

    A round runs every alternative once, in turn; the first round, which warms caches, is left out.

    Args:
        alternatives: what to run, by name.
        rounds: how often.
        clock: in seconds. ``time.process_time`` is right for what keeps one core busy, and says
            the same on a machine that is shared.
        repeats: how often in a row an alternative runs in its turn; the time is that of one.
        before: called before each turn, a barrier perhaps; its time does not count.
    """
    times: Times = {name: [] for name in alternatives}
    for turn in range(rounds + 1):
        for name, run in alternatives.items():
            before()
            start_s = clock()
            for _ in range(repeats):
                run()
            if turn:
                times[name].append((clock() - start_s) / repeats)
    return times


def print_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a Markdown table; all columns but the first are numbers."""
    print(f"\n| {' | '.join(header)} |\n|---|{'---:|' * (len(header) - 1)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")
    print(flush=True)


def print_rates(times: Times, amount: float, unit: str) -> None:
    """Print a table of rates: median, slowest and fastest round, and the ratio to the first row.

    Args:
        times: what ``side_by_side`` returned.
        amount: how much one run works through, in ``unit``.
        unit: of the amount; the table is in this per second.
    """
    first = statistics.median(next(iter(times.values())))
    rows = []
    for name, taken in times.items():
        median = statistics.median(taken)
        rates = (amount / seconds for seconds in (median, max(taken), min(taken)))
        rows.append([name, *(f"{rate:.2f}" for rate in rates), f"{first / median:.2f}"])
    print_table(["", f"{unit}/s", "slowest", "fastest", "ratio"], rows)


def print_times(times: Times) -> None:
    """Print a table of times in microseconds: median, slowest and fastest round."""
    rows = (
        [name, *(f"{pick(taken) * 1e6:,.0f}" for pick in (statistics.median, max, min))]
        for name, taken in times.items()
    )
    print_table(["", "µs", "slowest", "fastest"], rows)


def print_picture(picture: Picture, name: str) -> None:
    """Save a picture in ``results/``, and print the Markdown that shows it."""
    path = picture.save(RESULTS / f"{name}.png")
    print(f"\n![{picture.alt}]({path.name})\n", flush=True)
