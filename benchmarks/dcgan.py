"""How long the DCGAN takes, and what its whole training leads to.

What docs/dcgan.md says is measured by this.

python benchmarks/dcgan.py              a step's time: one rank on all cores, and a rank per core
python benchmarks/dcgan.py full         the whole training, 5,000 steps on 2 ranks: 45 minutes
python benchmarks/dcgan.py report       docs/dcgan.md and its pictures, out of what "full" left

A training that was interrupted goes on from its checkpoint, which lies under --out.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch
from measuring import print_table
from measuring.facts import machine_facts
from measuring.ranks import MPIEXEC

from tutorial_lib.compat.dcgan_curves import FILE, DcganCurve, dcgan_curves
from tutorial_lib.data.atomic import atomic_write
from tutorial_lib.display.curves import loss_curves
from tutorial_lib.display.grid import sample_grid
from tutorial_lib.distributed import session
from tutorial_lib.training.checkpoint import load_generator
from tutorial_lib.training.dcgan import Dcgan, DcganConfig
from tutorial_lib.training.samples import draw_samples

DOCS = Path(__file__).parents[1] / "docs"
WINDOW = 100  # steps
OURS = "ours"
STEPS = 20


def time_steps(threads: int) -> None:
    """Time steps on this rank; rank 0 prints wall-clock and processor time in milliseconds."""
    torch.set_num_threads(threads)
    with session.script() as ranks:
        gan = Dcgan(DcganConfig(), is_verbose=False)
        for _ in range(3):
            gan.step()
        wall, busy = [], []
        for _ in range(STEPS):
            start_s, start_busy_s = time.perf_counter(), time.process_time()
            gan.step()
            wall.append(1e3 * (time.perf_counter() - start_s))
            busy.append(1e3 * (time.process_time() - start_busy_s))
        if ranks.is_main:
            print(json.dumps([statistics.median(wall), min(wall), statistics.median(busy)]))


def speed() -> None:
    """Print a table of a step's times."""
    cores = os.cpu_count() or 1
    rows = []
    for ranks, threads in ((1, 1), (1, cores), (cores, 1)):
        command = [MPIEXEC, "-n", str(ranks), sys.executable, __file__, "steps"]
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        command += ["--threads", str(threads)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        figures = json.loads(done.stdout)
        name = f"{ranks} rank{'s' * (ranks > 1)}, {threads} thread{'s' * (threads > 1)} each"
        rows.append([name, *(f"{figure:,.0f}" for figure in figures)])
    print_table(["ms a step", "median", "fastest", "processor time of a rank"], rows)


def train(out: Path) -> None:
    """Train to the end, from the checkpoint if there is one."""
    out.mkdir(parents=True, exist_ok=True)
    files = {"checkpoint": "dcgan.ckpt", "losses": "losses.json", "save": "generator.pt"}
    command = [str(MPIEXEC), "-n", "2", sys.executable, "-m", "tutorial_lib.training.dcgan"]
    for option, name in files.items():
        command += [f"--{option}", str(out / name)]
    subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True)


def recorded(out: Path, window: int) -> DcganCurve:
    """Means of the last update of each network in its step, as CNTK's notebook prints them."""
    losses = json.loads((out / "losses.json").read_text())["losses"]
    means = {}
    for network in "GD":
        last = np.array([row[1] for row in losses if row[0] == network][1::2])
        means[network] = [round(float(m), 6) for m in last.reshape(-1, window).mean(axis=1)]
    return DcganCurve(OURS, window, means["G"], means["D"])


def report(out: Path) -> None:
    """Write docs/dcgan.md with its pictures, and our curve for notebook 08."""
    ours = recorded(out, 200)
    curves = [curve for curve in dcgan_curves() if curve.name != OURS] + [ours]
    with atomic_write(FILE, "w", encoding="utf-8") as file:
        file.write(json.dumps([curve._asdict() for curve in curves], indent=1) + "\n")
    generator, _ = load_generator(out / "generator.pt")
    grid = sample_grid(draw_samples(generator), alt="36 digits after 5,000 steps")
    grid.save(DOCS / "dcgan.png")
    for network in ("generator", "discriminator"):
        loss_curves(
            {curve.name: getattr(curve, network) for curve in curves},
            {curve.name: curve.steps for curve in curves},
            ylabel=f"{network}'s loss",
        ).save(DOCS / f"dcgan_{network}.png")
    fine = recorded(out, WINDOW)
    losses = json.loads((out / "losses.json").read_text())["losses"]
    rows = zip(fine.steps, fine.generator, fine.discriminator, strict=True)
    first_cells = [
        f"| {curve.name} | {curve.generator[0]:.3f} to {curve.generator[-1]:.3f} "
        f"| {curve.discriminator[0]:.3f} to {curve.discriminator[-1]:.3f} |"
        for curve in curves
    ]
    text = TEXT.format(
        curves="\n".join(first_cells),
        last=losses[-1][1],
        facts="\n".join(f"- {fact}" for fact in machine_facts() if not fact.startswith("load")),
        table="\n".join(f"| {step:,} | {g:.3f} | {d:.3f} |" for step, g, d in rows),
    )
    with atomic_write(DOCS / "dcgan.md", "w", encoding="utf-8") as file:
        file.write(text)


TEXT = """# The DCGAN's whole training

CNTK's notebook 206B, 5,000 steps with minibatches of 128, by `tutorial_lib/training/dcgan.py` on
2 ranks with one thread each, in float32. Losses are means over 200 steps of each network's last
update in a step, the first such mean and the last one; CNTK's are the lines printed in two editions
of its notebook.

| | generator | discriminator |
|---|---|---|
{curves}

CNTK's runs end with "Training loss of the generator is: 1.71" and "1.67", which is the last update
alone; ours with {last:.2f}. A discriminator that always answers one half would have 1.386, and the
generator then 1.693.

![36 digits, drawn by rank 0 with its running statistics](dcgan.png)

![The generator's losses](dcgan_generator.png)

![The discriminator's losses](dcgan_discriminator.png)

## What is as in CNTK, and what is not

- Batch normalisation is each rank's own: each of 2 ranks normalises its 64 real and its 64
  generated images apart, each by their own mean and variance, and keeps running statistics of its
  own. CNTK's published runs had one worker, which normalised 128.
- Adam with 0.0002 per sample, momentum 0.5 per minibatch, and CNTK's default for the momentum of
  the variance, exp(-1/720000) per sample.
- Initial weights, order and noise come from other random streams than CNTK's.
- In CNTK's two runs the discriminator is far ahead over the first 200 steps. In ours it isn't, and
  we don't know why. It is no slip of one program: a second one of plain torch layers and
  `torch.optim.Adam`, in one process with 128 images, behaves as ours does.

What was tried in that second program, with the means over all of its steps:

| | steps | generator | discriminator | its images |
|---|---|---|---|---|
| as described above | 210 | 1.70 | 1.20 | digits begin to show |
| learning rate 11.3 times as large | 220 | 2.58 | 0.84 | one pattern, always the same |
| learning rate 30 times as large | 200 | 3.96 | 0.67 | one pattern, always the same |
| Adam without correction of its bias | 150 | 1.82 | 1.24 | not looked at |
| FSAdaGrad for Adam | 170 | 1.77 | 1.23 | not looked at |
| scale and shift learn from real images alone | 40 | 1.71 | 1.25 | not looked at |
| scale and shift learn from generated images alone | 60 | 1.75 | 1.20 | not looked at |
| real and generated images normalised together | 60 | 1.67 | 0.02 | not looked at |
| one mean and variance for a whole vector | 130 | 2.77 | 0.68 | one pattern, always the same |

The last one comes close to CNTK's losses, but CNTK's source keeps statistics for each element of a
vector, and with a single mean the images were no digits after 800 steps. Nor need CNTK's have been:
readers of its notebook reported noise instead of digits, with CNTK 2.2
([issue 2645](https://github.com/microsoft/CNTK/issues/2645)) and with 2.6
([issue 3489](https://github.com/microsoft/CNTK/issues/3489)).

The stripes in our images are there because the discriminator can't see them. Its first layer is one
filter that moves by two pixels, so a pattern that repeats every two pixels adds one number to all
of its outputs, and batch normalisation takes that number away. Chapter 08 shows it.

## How long it takes

The run of 30 November 2026 took 41 minutes on two cores of an Intel Xeon (family 6, model 207),
some of them beside other work. On two cores of an AMD EPYC a step took about 0.85 s of one core on
one rank, and about 0.55 s of each core on two ranks (processor time, PyTorch 2.13, float32, one
thread for each rank). Nearly half of that is one layer, the transposed convolution from 128 to 128
channels; an eighth is Adam.

## Every {window} steps

| step | generator | discriminator |
|---|---|---|
{table}

## Measured how

{facts}

To repeat: `python benchmarks/dcgan.py full`, then `python benchmarks/dcgan.py report`.
""".replace("{window}", str(WINDOW))


def main() -> None:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "what", nargs="?", default="speed", choices=["speed", "steps", "full", "report"]
    )
    parser.add_argument("--out", type=Path, default=Path("outputs/dcgan"))
    parser.add_argument("--threads", type=int, default=1, help="of a rank, for steps")
    options = parser.parse_args()
    if options.what == "steps":
        time_steps(options.threads)
    elif options.what == "speed":
        speed()
    elif options.what == "full":
        train(options.out)
    else:
        report(options.out)


if __name__ == "__main__":
    main()
