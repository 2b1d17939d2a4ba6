"""Training steps a second: this project, what a user would pick instead, and the limit.

python benchmarks/training_step.py                    five rounds: about 8 minutes on two cores
python benchmarks/training_step.py --rounds 1 --steps 30 ours ddp        a quick look at some

A step is two discriminator updates and one generator update of the GAN of CNTK's example, at a
global minibatch of 1024. The contestants, each in ``contestants/`` as its documentation teaches,
take turns, so that what disturbs the machine disturbs all. Accelerate and Fabric:
``pip install -e .[bench]``.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from measuring import print_picture, print_table
from measuring.pictures import rate_bars
from measuring.ranks import MPIEXEC

FOLDER = Path(__file__).parent
TIMEOUT_S = 300
REFERENCE = "torchrun DDP, gloo, DataLoader"
LIMIT = "matrix products alone, oneDNN"


@dataclass(frozen=True)
class Contestant:
    """One row of the table.

    Attributes:
        name: What the row says.
        script: In ``contestants/``, without .py.
        ranks: Number of processes.
        threads: Of each.
        launcher: "python" (also what starts its own processes), "mpiexec" or "torchrun".
        arguments: Of the script.
        needs: Package that must be installed.
        variables: Of the environment.
    """

    name: str
    script: str
    ranks: int
    threads: int
    launcher: str = "python"
    arguments: tuple[str, ...] = ()
    needs: str = "torch"
    variables: tuple[tuple[str, str], ...] = ()

    def command(self, steps: int) -> list[str]:
        """What to start."""
        launchers = {
            "python": [sys.executable],
            "mpiexec": [str(MPIEXEC), "-n", str(self.ranks), sys.executable],
            "torchrun": [
                *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
                f"--nproc-per-node={self.ranks}",
            ],
        }
        script = FOLDER / "contestants" / f"{self.script}.py"
        return [
            *launchers[self.launcher],
            *(str(script), *self.arguments, "--steps", str(steps)),
        ]

    def run(self, steps: int) -> float:
        """Steps per second."""
        process = subprocess.Popen(
            self.command(steps),
            env={**os.environ, "OMP_NUM_THREADS": str(self.threads), **dict(self.variables)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            stdout, stderr = process.communicate(timeout=TIMEOUT_S)
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)  # the launcher and its ranks
        lines = [line for line in stdout.splitlines() if line.startswith('{"steps_per_s"')]
        if len(lines) != 1:
            raise SystemExit(f"{self.name} failed:\n{stdout}\n{stderr}")
        if process.returncode:  # gloo's threads may abort a process that exits; it has measured
            print(f"{self.name} ended with {process.returncode} afterwards", file=sys.stderr)
        return float(json.loads(lines[0])["steps_per_s"])


def contestants() -> list[Contestant]:
    floor = ("--library", "onednn")
    mkl = (("GAN_TUTORIAL_MATRIX_PRODUCT", "mkl"),)
    return [
        Contestant("ours, script", "ours", 1, 2),
        Contestant("ours, script", "ours", 2, 1, "mpiexec"),
        Contestant("ours, script", "ours", 4, 1, "mpiexec"),
        Contestant("ours, in a notebook", "engines", 2, 1),
        Contestant("ours, pinned to MKL", "ours", 2, 1, "mpiexec", variables=mkl),
        Contestant("plain PyTorch, DataLoader", "plain", 1, 2),
        Contestant(REFERENCE, "ddp", 2, 1, "torchrun"),
        Contestant(REFERENCE, "ddp", 4, 1, "torchrun"),
        Contestant("Accelerate", "accelerated", 2, 1, "torchrun", needs="accelerate"),
        Contestant("Lightning Fabric", "fabric", 2, 1, needs="lightning"),
        Contestant(LIMIT, "floor", 2, 1, "mpiexec", floor),
        Contestant(LIMIT, "floor", 1, 2, "python", floor),
        Contestant("matrix products alone, MKL", "floor", 2, 1, "mpiexec", ("--library", "mkl")),
    ]


def print_results(rates: dict[Contestant, list[float]]) -> None:
    """Print a table, and a picture of it."""
    medians = {contestant: statistics.median(found) for contestant, found in rates.items()}

    def ratio(value: float, name: str, ranks: int) -> str:
        bases = [m for c, m in medians.items() if (c.name, c.ranks) == (name, ranks)]
        return f"{value / bases[0]:.2f}" if bases else ""

    rows = []
    for contestant, median in medians.items():
        found = rates[contestant]
        rows.append(
            [
                contestant.name,
                f"{contestant.ranks} x {contestant.threads}",
                f"{median:.1f}",
                f"{min(found):.1f} to {max(found):.1f}",
                ratio(median, REFERENCE, max(2, contestant.ranks)),
                ratio(median, LIMIT, 2),
            ]
        )
    print_table(
        ["", "ranks x threads", "steps/s", "slowest to fastest", "to DDP", "of the limit"], rows
    )
    names = [f"{c.name}, {c.ranks} x {c.threads}" for c in medians]
    print_picture(rate_bars(names, list(rates.values()), "steps/s"), "training_step")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("scripts", nargs="*", help="only these, by the names in contestants/")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    chosen = [c for c in contestants() if not options.scripts or c.script in options.scripts]
    missing = sorted({c.needs for c in chosen if find_spec(c.needs) is None})
    if missing:
        print(f"Left out, not installed: {', '.join(missing)}; pip install -e .[bench]\n")
    rates: dict[Contestant, list[float]] = {c: [] for c in chosen if c.needs not in missing}
    for turn in range(options.rounds):
        for contestant, found in rates.items():
            found.append(contestant.run(options.steps))
            print(
                f"round {turn + 1}: {contestant.name}, "
                f"{contestant.ranks} x {contestant.threads}: {found[-1]:.1f} steps/s",
                file=sys.stderr,
            )
    print(
        f"Medians of {options.rounds} rounds of {options.steps} steps, taken in turn. The ratio to "
        "DDP is the one to torchrun's at as many ranks (2 for one process); the limit is what the "
        "step's matrix products alone would take with oneDNN on 2 ranks."
    )
    print_results(rates)


if __name__ == "__main__":
    main()
