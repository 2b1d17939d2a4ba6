"""How well TensorLayer's two examples learn.

What docs/accuracy.md says is measured by this.

python benchmarks/accuracy.py                          MNIST, one epoch: a quick look
python benchmarks/accuracy.py mnist --seeds 0 1 2      all of MNIST's: 40 minutes of one core
python benchmarks/accuracy.py cifar10 --datadir DIR    all of CIFAR-10's; with --bf16 40 minutes

A run that was interrupted goes on where it was: each has a folder under --out for its checkpoint
and for its figures.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from measuring.ranks import MPIEXEC

from tutorial_lib.data.atomic import atomic_write
from tutorial_lib.data.cifar import cifar10
from tutorial_lib.data.datasets import mnist
from tutorial_lib.distributed import session
from tutorial_lib.training.cifar10_cnn import CifarConfig, cifar10_trainer
from tutorial_lib.training.mnist_mlp import MnistConfig, build_validation, mnist_trainer

MEASURED_EPOCHS = (1, 5, 20)


@dataclass(frozen=True)
class Run:
    """One training: figures are taken on the way, after 1, 5 and 20 epochs."""

    example: str = "mnist"
    ranks: int = 1
    seed: int = 0
    epochs: int = 20
    initialization: str = "tensorlayer"
    weight_penalty: float = 0.004
    bf16: bool = False
    datadir: str | None = None

    @property
    def name(self) -> str:
        """Of the run's folder."""
        parts = [self.example, self.initialization, f"{self.ranks}ranks", f"seed{self.seed}"]
        parts += ["no-penalty"] * (self.weight_penalty == 0) + ["bf16"] * self.bf16
        return "-".join(parts)


def train(run: Run, folder: Path) -> None:
    """Train on this rank; rank 0 writes what the whole test set says."""
    with session.script() as ranks:
        data, options = mnist().test, {}
        if run.example == "mnist":
            config = MnistConfig(
                epochs=run.epochs,
                batch_size=500 // run.ranks,
                seed=run.seed,
                initialization=run.initialization,
                scaling=False,  # the global minibatch stays 500
                log_every=0,
            )
            trainer = mnist_trainer(config, checkpoint_dir=folder, checkpoint_interval_s=60)
        else:
            dataset = cifar10(run.datadir)
            data = dataset.test
            precision = torch.bfloat16 if run.bf16 else None
            options = {
                "epochs": run.epochs,
                "batch_size": 128 // run.ranks,
                "seed": run.seed,
                "initialization": run.initialization,
                "weight_penalty": run.weight_penalty,
                "scaling": False,
                "autocast": precision,
                "log_every": 0,
            }
            trainer = cifar10_trainer(
                dataset, CifarConfig(**options), checkpoint_dir=folder, checkpoint_interval_s=60
            )
        figures = folder / "figures.json"
        found = json.loads(figures.read_text()) if figures.exists() else {}
        cpu_s = time.process_time() - found.get("cpu_s", 0.0)
        for _ in trainer:
            if trainer.epoch in MEASURED_EPOCHS:
                measured = trainer.evaluate(data, build_validation_of(run))
                found[f"{trainer.epoch:.0f}"] = measured["accuracy"]
                found["cpu_s"] = time.process_time() - cpu_s
                if ranks.is_main:
                    with atomic_write(figures, "w") as file:
                        json.dump({**asdict(run), **found}, file)


def build_validation_of(run: Run):
    """The validation function of an example."""
    from tutorial_lib.training import cifar10_cnn

    return build_validation if run.example == "mnist" else cifar10_cnn.build_validation


def start(run: Run, out: Path) -> dict[str, float]:
    """Make one run, under mpiexec if it has several ranks, unless its figures are there."""
    folder = out / run.name
    figures = folder / "figures.json"
    if not figures.exists() or str(run.epochs) not in json.loads(figures.read_text()):
        command = [sys.executable, __file__, "--worker", json.dumps(asdict(run)), "--out", out]
        if run.ranks > 1:
            command = [MPIEXEC, "-n", str(run.ranks), *command]
        subprocess.run(list(map(str, command)), check=True)
    found: dict[str, float] = json.loads(figures.read_text())
    return found


def report(name: str, found: list[dict[str, float]], epochs: list[int]) -> None:
    """Print a row: the mean of the seeds' test accuracies, and their range."""
    cells = []
    for epoch in epochs:
        values = [100 * run[str(epoch)] for run in found if str(epoch) in run]
        spread = f"{min(values):.2f}-{max(values):.2f}" if values else ""
        cells.append(f"{statistics.mean(values):.2f} ({spread})" if values else "")
    print(f"| {name} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("example", nargs="?", choices=["mnist", "cifar10"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--datadir")
    parser.add_argument("--bf16", action="store_true", help="matrix products in bfloat16")
    parser.add_argument("--no-penalty", action="store_true", help="CIFAR-10 without its L2 term")
    parser.add_argument("--out", type=Path, default=Path("outputs/accuracy"))
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        run = Run(**json.loads(options.worker))
        train(run, options.out / run.name)
        return
    if options.example is None:
        run = Run(epochs=1, seed=99)
        report("MNIST, 1 rank, 1 seed, 1 epoch", [start(run, options.out)], [1])
        return
    rows: dict[str, list[Run]] = {}
    if options.example == "cifar10":
        penalty = 0.0 if options.no_penalty else Run.weight_penalty
        shared = {"weight_penalty": penalty, "bf16": options.bf16, "datadir": options.datadir}
        rows[f"CIFAR-10, L2 term of {penalty}"] = [
            Run("cifar10", 1, seed, options.epochs, **shared) for seed in options.seeds
        ]
    else:
        for initialization, ranks in (
            ("pytorch", 1),
            ("tensorlayer", 1),
            ("tensorlayer", 2),
            ("tensorlayer", 4),
        ):
            if ranks in options.ranks:
                rows[f"{initialization}, ranks: {ranks}"] = [
                    Run("mnist", ranks, seed, options.epochs, initialization)
                    for seed in options.seeds
                ]
    print("| test accuracy, % | 1 epoch | 5 epochs | 20 epochs |\n|---|---|---|---|")
    for name, runs in rows.items():
        report(name, [start(run, options.out) for run in runs], list(MEASURED_EPOCHS))


if __name__ == "__main__":
    main()
