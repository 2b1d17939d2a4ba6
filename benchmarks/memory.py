"""How much memory a large set takes on four ranks, and how long it takes to open.

A set of 392 MB is mapped by every rank, and, for comparison, copied by every rank. PSS is a rank's
share of memory, pages that n ranks map counting 1/n each; USS is what no other process has.
Linux only.

python benchmarks/memory.py
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from measuring import print_table
from measuring.ranks import run_under_mpiexec

from tutorial_lib.data.datasets import Split, mnist
from tutorial_lib.data.folder import CTF_NAMES, IDX_NAMES
from tutorial_lib.data.idx import write_idx
from tutorial_lib.data.install import install
from tutorial_lib.data.minibatch_source import MinibatchSource
from tutorial_lib.distributed import session

RANKS = 4
SAMPLES = 500_000
MINIBATCH_SIZE = 1024


def write_set(folder: Path) -> None:
    random = np.random.default_rng(0)
    for (images, labels), n in zip(IDX_NAMES, (SAMPLES, 10_000), strict=True):
        write_idx(folder / images, random.integers(0, 256, (n, 28, 28), dtype=np.uint8))
        write_idx(folder / labels, random.integers(0, 10, n, dtype=np.uint8))


def memory_bytes() -> torch.Tensor:
    """PSS and USS of this process."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]
    kilobytes = {line.split(":")[0]: int(line.split()[1]) for line in lines}
    uss = kilobytes["Private_Clean"] + kilobytes["Private_Dirty"]
    return torch.tensor([kilobytes["Pss"], uss]) * 1024


def measure(folder: str) -> None:
    """Open the set, draw each sample once, and ask what that has taken. Collective."""
    with session.script() as ranks:
        rows = [["without the set", *memory(ranks), ""]]
        for name, is_copied in (("mapped", False), ("a copy each", True)):
            split = mnist(folder).train
            if is_copied:
                split = Split(split.images.clone(), split.labels)
            sweep_s = seconds_of_sweep(split, ranks)
            rows.append([name, *memory(ranks), f"{sweep_s:.2f}"])
        if ranks.is_main:
            print(f"## {ranks.world_size} ranks, {split.images.nbytes / 1e6:.0f} MB of images")
            print_table(["", "PSS of a rank, MB", "USS, MB", "its part of a sweep, s"], rows)


def seconds_of_sweep(split: Split, ranks: session.Session) -> float:
    """Processor time of drawing this rank's part of each sample once; then use all pages."""
    source = MinibatchSource(split)
    began_s = time.process_time()
    for _ in range(len(source) // MINIBATCH_SIZE):
        source.next_minibatch(MINIBATCH_SIZE, ranks.world_size, ranks.rank)
    sweep_s = time.process_time() - began_s
    split.images.max()
    return sweep_s


def memory(ranks: session.Session) -> list[str]:
    """Mean PSS and USS of the ranks. Collective."""
    ranks.barrier()
    mean = memory_bytes().double()
    ranks.barrier()
    dist.all_reduce(mean)
    return [f"{value / ranks.world_size / 1e6:.0f}" for value in mean.tolist()]


def opening(folder: Path) -> None:
    """Time to open MNIST as CNTK's text: parsed, and found in the cache."""
    install("ctf", folder, report=lambda _: None)
    rows = []
    for name in ("the first time, parsed", "again, mapped"):
        began_s = time.process_time()
        mnist(folder)
        rows.append([name, f"{time.process_time() - began_s:.3f}"])
    size = sum((folder / name).stat().st_size for name in CTF_NAMES)
    print(f"## MNIST as CNTK's text, {size / 1e6:.0f} MB")
    print_table(["", "processor s"], rows)


def main() -> None:
    if len(sys.argv) > 1:
        measure(sys.argv[1])
        return
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = str(Path(folder) / "cache")
        write_set(Path(folder))
        run_under_mpiexec(__file__, RANKS, folder)
        opening(Path(folder) / "ctf")


if __name__ == "__main__":
    main()
