"""What matrix products in bfloat16 gain the GAN in time, and cost it in quality.

python benchmarks/bfloat16.py                 three seeds of the fast mode: about two minutes
python benchmarks/bfloat16.py --seeds 1       one
"""

from __future__ import annotations

import argparse
import statistics

import torch
from measuring import print_table

from tutorial_lib.training.basic_gan import GanConfig, GanResult, train_gan

PRECISIONS = {"float32": None, "bfloat16 products": torch.bfloat16}
LAST = 50  # generator updates that a final loss is the mean over


def row(name: str, runs: list[GanResult]) -> list[str]:
    """One precision: both players' final losses and the steps per second, over all seeds."""
    g_losses = [statistics.mean(run.curve("G")[-LAST:]) for run in runs]
    d_losses = [statistics.mean(run.curve("D")[-2 * LAST :]) for run in runs]
    rate = statistics.median(len(run.curve("G")) / run.seconds for run in runs)
    cells = (
        f"{statistics.mean(losses):.3f} ({min(losses):.3f} to {max(losses):.3f})"
        for losses in (g_losses, d_losses)
    )
    return [name, *cells, f"{rate:.1f}"]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    seeds = parser.parse_args().seeds
    runs: dict[str, list[GanResult]] = {name: [] for name in PRECISIONS}
    for seed in seeds:
        for name, autocast in PRECISIONS.items():
            config = GanConfig(seed=seed, autocast=autocast)
            runs[name].append(train_gan(config, is_verbose=False))
    print(
        f"Fast mode of the GAN, one process, {torch.get_num_threads()} threads, seeds "
        f"{', '.join(map(str, seeds))}. Losses: mean of the generator's last {LAST} updates, and "
        "of the discriminator's meanwhile; the seeds' mean and range."
    )
    print_table(
        ["", "generator's loss", "discriminator's loss", "steps/s"],
        (row(name, found) for name, found in runs.items()),
    )


if __name__ == "__main__":
    main()
