"""What an all-reduce costs over MPI and over gloo, by size.

python benchmarks/allreduce.py                    on 2 and on 4 ranks
mpiexec -n 2 python benchmarks/allreduce.py       on the ranks that are there

The two transports take turns at every size, so that what disturbs the machine disturbs both; a
turn is some in a row, as in a training whose ranks are in step. Medians. Target: the gradients of
one network (118,016 float32 values, 472 kB) cost at most 1/15 of gloo's time on 2 ranks.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch
import torch.distributed as dist
from measuring import Times, print_picture, print_table, side_by_side
from measuring.ranks import run_under_mpiexec

from tutorial_lib.display.costs import cost_curve, duration, size
from tutorial_lib.distributed import session, topology

NETWORK = 118_016
COUNTS = [0, 1, 256, 4096, 16384, NETWORK, 1 << 20, 1 << 22, 1 << 24]  # of float32, 0 is one byte
BUDGET_S = 2.0  # for one size, more or less
IN_A_ROW = 20
ROUNDS = (5, 200)  # at least and at most

Alternatives = dict[str, Callable[[], object]]


def measure() -> None:
    """Measure on this rank, print on rank 0. Collective."""
    with session.script() as ranks:
        gloo = dist.new_group(backend="gloo")
        sizes_bytes = []
        medians_s: Times = {"MPI": [], "gloo": []}
        for count in COUNTS:
            tensor = torch.zeros(count) if count else torch.zeros(1, dtype=torch.uint8)
            alternatives: Alternatives = {
                "MPI": lambda tensor=tensor: dist.all_reduce(tensor),
                "gloo": lambda tensor=tensor: dist.all_reduce(tensor, group=gloo),
            }

            def measured(rounds: int, alternatives: Alternatives = alternatives) -> Times:
                return side_by_side(alternatives, rounds, repeats=IN_A_ROW, before=dist.barrier)

            round_s = IN_A_ROW * sum(map(statistics.median, measured(3).values()))
            rounds = torch.tensor([min(max(int(BUDGET_S / round_s), ROUNDS[0]), ROUNDS[1])])
            dist.broadcast(rounds, 0)
            times = measured(int(rounds))
            sizes_bytes.append(tensor.nbytes)
            for name, taken in times.items():
                medians_s[name].append(statistics.median(taken))
        if ranks.is_main:
            print(f"## {ranks.world_size} ranks")
            rows = zip(sizes_bytes, *medians_s.values(), strict=True)
            print_table(
                ["size", *medians_s, "gloo / MPI"],
                (
                    [size(nbytes), duration(mpi_s), duration(gloo_s), f"{gloo_s / mpi_s:.1f}"]
                    for nbytes, mpi_s, gloo_s in rows
                ),
            )
            picture = cost_curve(sizes_bytes, medians_s, {"a network's gradients": 4 * NETWORK})
            print_picture(picture, f"allreduce_{ranks.world_size}_ranks")


def main() -> None:
    if topology.launcher() == "mpi":
        measure()
        return
    for ranks in (2, 4):
        run_under_mpiexec(__file__, ranks)


if __name__ == "__main__":
    main()
