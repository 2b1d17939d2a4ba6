"""What matrix products in bfloat16 gain the GAN in time, and cost it in quality.

python benchmarks/bfloat16.py                 three seeds of the fast mode: about two minutes
python benchmarks/bfloat16.py --seeds 1       one
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

import torch
from measuring.facts import machine_facts

from tutorial_lib.training.basic_gan import GanConfig, GanResult, train_gan

RESULTS = Path(__file__).parent / "results" / "bfloat16.md"
PRECISIONS = {"float32": None, "bfloat16 products": torch.bfloat16}
LAST = 50  # generator updates that a final loss is the mean over


def row(name: str, runs: list[GanResult]) -> str:
    """One precision: both players' final losses and the steps per second, over all seeds."""
    g_losses = [statistics.mean(run.curve("G")[-LAST:]) for run in runs]
    d_losses = [statistics.mean(run.curve("D")[-2 * LAST :]) for run in runs]
    rate = statistics.median(len(run.curve("G")) / run.seconds for run in runs)
    cells = [
        f"{statistics.mean(losses):.3f} ({min(losses):.3f} to {max(losses):.3f})"
        for losses in (g_losses, d_losses)
    ]
    return f"| {name} | {cells[0]} | {cells[1]} | {rate:.1f} |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    facts = machine_facts()
    runs: dict[str, list[GanResult]] = {name: [] for name in PRECISIONS}
    for seed in options.seeds:
        for name, autocast in PRECISIONS.items():
            config = GanConfig(seed=seed, autocast=autocast)
            runs[name].append(train_gan(config, is_verbose=False))
    lines = [
        "# Matrix products in bfloat16",
        "",
        f"Fast mode of the GAN, one process, {torch.get_num_threads()} threads, seeds "
        f"{', '.join(map(str, options.seeds))}. Losses: mean of the generator's last {LAST} "
        "updates, and of the discriminator's meanwhile; the seeds' mean and range.",
        "",
        "| | generator's loss | discriminator's loss | steps/s |",
        "|---|---|---|---|",
        *(row(name, found) for name, found in runs.items()),
        "",
        *(f"- {fact}" for fact in facts),
    ]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
