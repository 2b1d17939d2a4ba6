"""How long ranks take to be ready for a notebook, and how long a cell takes to come back.

Targets on two cores: 2 ranks are ready within 1.6 s, 4 within 2.4 s; a cell's result within 20 ms.

python benchmarks/startup.py
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time

from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from measuring import Times, print_table, side_by_side

from tutorial_lib.cluster import Cluster, Ranks

ROUNDS = 5
ROUND_TRIPS = 50
READING_S = 5.0  # between the cell that starts the ranks and the first that uses them
FIRST_CELL = "import torch\ntorch.ones(3).sum().item()"
IMPORTS = ("tutorial_lib", "tutorial_lib.cluster", "torch")


def main() -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    print("## Start\n\nSeconds, medians of", ROUNDS)
    rows = []
    for n in (2, 4):
        ready: list[float] = []
        first: dict[str, list[float]] = {}
        for _ in range(ROUNDS):
            for name, process_group, reading_s in (
                ("without", False, 0.0),
                ("at once", True, 0.0),
                ("after reading", True, READING_S),
            ):
                began_s = time.perf_counter()
                with Cluster(n, attach=False, process_group=process_group) as ranks:
                    ready.append(time.perf_counter() - began_s)
                    time.sleep(reading_s)
                    first.setdefault(name, []).append(seconds_of(ranks, FIRST_CELL))
        medians = [statistics.median(taken) for taken in (ready, *first.values())]
        rows.append([f"{n} ranks", f"{min(ready):.2f}", *(f"{taken:.2f}" for taken in medians)])
    print_table(
        [
            "",
            "ready, fastest",
            "ready, median",
            "first cell with torch, nothing imported ahead",
            "first cell with torch, at once",
            f"first cell with torch, {READING_S:.0f} s later",
        ],
        rows,
    )
    print("## Round trip of an empty cell\n\nMilliseconds, medians of", ROUND_TRIPS)
    print_table(["", "`%%ranks`", "`%%px`"], [round_trips(n) for n in (2, 4)])
    print("## Import\n\nMilliseconds of processor time beside Python's own, the least of", ROUNDS)
    times = import_times()
    python_s = min(times.pop("sys"))
    print_table(
        ["", "ms"], [[f"`{name}`", f"{1e3 * (min(t) - python_s):.0f}"] for name, t in times.items()]
    )


def seconds_of(ranks: Ranks, cell: str) -> float:
    began_s = time.perf_counter()
    ranks.run(cell)
    return time.perf_counter() - began_s


def round_trips(n: int) -> list[str]:
    """Time the magics as a notebook's kernel runs them."""
    shell = InteractiveShell.instance()
    with Cluster(n, attach=False) as ranks:
        ranks.run(FIRST_CELL)

        def cell(magic: str) -> None:
            with capture_output():
                shell.run_cell_magic(magic, "", "pass")

        alternatives = {magic: (lambda magic=magic: cell(magic)) for magic in ("ranks", "px")}
        times = side_by_side(alternatives, ROUND_TRIPS)
    return [f"{n} ranks", *(f"{1e3 * statistics.median(taken):.1f}" for taken in times.values())]


def import_times() -> Times:
    """Processor time of a Python that imports something, child processes' included."""

    def run(module: str) -> None:
        subprocess.run([sys.executable, "-c", f"import {module}"], check=True)

    alternatives = {name: (lambda name=name: run(name)) for name in ("sys", *IMPORTS)}
    return side_by_side(alternatives, ROUNDS, clock=children_s)


def children_s() -> float:
    times = os.times()
    return times.children_user + times.children_system


if __name__ == "__main__":
    main()
