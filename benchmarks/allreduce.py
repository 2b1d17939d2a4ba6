"""What an all-reduce costs over MPI and over gloo, by size.

python benchmarks/allreduce.py                    on 2 and on 4 ranks
mpiexec -n 2 python benchmarks/allreduce.py       on the ranks that are there

Prints Markdown tables of medians. The two transports take turns at every size, so that what
disturbs the machine disturbs both. Target: the gradients of one network (118,016 float32 values,
461 KiB) cost at most 1/15 of gloo's time on 2 ranks.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from measuring import side_by_side
from measuring.facts import machine_facts

from tutorial_lib.distributed import session, topology

NETWORK = 118_016
COUNTS = [0, 1, 256, 4096, 16384, NETWORK, 1 << 20, 1 << 22, 1 << 24]  # of float32, 0 is one byte
BUDGET_S = 1.5  # for one size, more or less
MPIEXEC = Path(sys.executable).with_name("mpiexec")


def measure() -> None:
    """Measure on this rank, print on rank 0. Collective."""
    with session.script() as ranks:
        gloo = dist.new_group(backend="gloo")
        rows = []
        for count in COUNTS:
            tensor = torch.zeros(count) if count else torch.zeros(1, dtype=torch.uint8)
            alternatives = {
                "mpi": lambda tensor=tensor: dist.all_reduce(tensor),
                "gloo": lambda tensor=tensor: dist.all_reduce(tensor, group=gloo),
            }
            rounds = torch.tensor([rounds_for(alternatives)])
            dist.broadcast(rounds, 0)
            times = side_by_side(alternatives, int(rounds))
            rows.append((tensor.nbytes, *(statistics.median(times[name]) for name in alternatives)))
        if ranks.is_main:
            print_table(ranks.world_size, rows)


def rounds_for(alternatives: dict[str, object]) -> int:
    """How many rounds fit the budget, by a few rounds' time."""
    times = side_by_side(alternatives, 3)
    round_s = sum(statistics.median(taken) for taken in times.values())
    return min(max(int(BUDGET_S / round_s), 5), 500)


def print_table(world_size: int, rows: list[tuple[int, float, float]]) -> None:
    print(f"\n### {world_size} ranks\n")
    print("| size | MPI | gloo | gloo / MPI |")
    print("|---:|---:|---:|---:|")
    for nbytes, mpi_s, gloo_s in rows:
        print(f"| {size(nbytes)} | {duration(mpi_s)} | {duration(gloo_s)} | {gloo_s / mpi_s:.1f} |")


def size(nbytes: int) -> str:
    for unit, scale in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if nbytes >= scale:
            return f"{nbytes / scale:.0f} {unit}"
    return f"{nbytes} B"


def duration(seconds: float) -> str:
    return f"{seconds * 1e6:,.0f} µs" if seconds < 0.01 else f"{seconds * 1e3:,.0f} ms"


def main() -> None:
    if topology.launcher() == "mpi":
        measure()
        return
    print("\n".join(machine_facts("mpi4py", "mpich")), flush=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    for ranks in (2, 4):
        command = [str(MPIEXEC), "-n", str(ranks), sys.executable, __file__]
        subprocess.run(command, check=True, env=environment)


if __name__ == "__main__":
    main()
