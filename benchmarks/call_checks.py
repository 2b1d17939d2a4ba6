"""What it costs that ranks compare their calls, and what a sync check costs.

python benchmarks/call_checks.py                    on 2 ranks
mpiexec -n 4 python benchmarks/call_checks.py       on the ranks that are there

Prints a Markdown table of medians. With and without take turns, so that what disturbs the machine
disturbs both. The numbers stand in docs/faults.md.
"""

from __future__ import annotations

import statistics

import torch
import torch.distributed as dist
from measuring import print_table, side_by_side
from measuring.ranks import run_under_mpiexec

from tutorial_lib.distributed import mpi_backend, session, topology
from tutorial_lib.distributed.sync_check import check_in_sync
from tutorial_lib.training.gan import BasicGan, GanConfig

NETWORK = 118_016
ROUNDS = 400
STEPS = 5  # of the GAN in one turn


def measure() -> None:
    """Measure on this rank, print on rank 0. Collective."""
    with session.script() as ranks:
        rows = [
            (f"all-reduce, {count * 4 / 1024:.0f} KiB", *all_reduce(count))
            for count in (256, 16_384, NETWORK)
        ]
        gan = BasicGan(GanConfig(), is_verbose=False)
        rows.append(("GAN step (minibatch 1024)", *gan_step(gan)))
        checks = side_by_side({"check": lambda: check_in_sync(gan.discriminator)}, ROUNDS)
        if ranks.is_main:
            print(f"## {ranks.world_size} ranks")
            print_table(["", "without", "with", "more"], map(cells, rows))
            check_s = statistics.median(checks["check"])
            print(f"`check_in_sync` of the discriminator: {micro(check_s)}")


def all_reduce(count: int) -> tuple[float, float]:
    """Seconds without and with the comparison."""
    tensor = torch.zeros(count)
    plain, checked = dist.new_group(), dist.new_group()
    checked.check_calls(True)
    times = side_by_side(
        {
            "without": lambda: dist.all_reduce(tensor, group=plain),
            "with": lambda: dist.all_reduce(tensor, group=checked),
        },
        ROUNDS,
    )
    return statistics.median(times["without"]), statistics.median(times["with"])


def gan_step(gan: BasicGan) -> tuple[float, float]:
    """Seconds of a step without and with the comparison."""

    def steps(is_checked: bool) -> None:
        for group in mpi_backend.groups():
            group.check_calls(is_checked)
        for _ in range(STEPS):
            gan.step()

    times = side_by_side({"without": lambda: steps(False), "with": lambda: steps(True)}, 20)
    return (
        statistics.median(times["without"]) / STEPS,
        statistics.median(times["with"]) / STEPS,
    )


def cells(row: tuple[str, float, float]) -> list[str]:
    name, without_s, with_s = row
    more = f"{micro(with_s - without_s)} ({100 * (with_s / without_s - 1):.0f} %)"
    return [name, micro(without_s), micro(with_s), more]


def micro(seconds: float) -> str:
    return f"{seconds * 1e6:,.0f} µs"


def main() -> None:
    if topology.launcher() == "mpi":
        measure()
        return
    run_under_mpiexec(__file__, 2)


if __name__ == "__main__":
    main()
