"""Checks of notebook 02: the GAN on one node."""

from __future__ import annotations

import math
from typing import Any

import torch

from tutorial_lib.exercises.cases import call, expect
from tutorial_lib.exercises.verdict import exercise


@exercise("02.1")
def per_minibatch(answer: Any) -> None:
    """The answer turns per-sample settings into those of an optimizer that averages."""
    for lr, momentum, n in [
        (0.00005, math.exp(-1 / 700), 1024),
        (0.00005, math.exp(-1 / 700), 1),
        (0.01, 0.9, 2),
    ]:
        expect(
            f"learning rate {lr:g} and momentum {momentum:.6f} per sample, {n} samples",
            call(answer, lr, momentum, n),
            (lr * n, momentum**n),
            tolerance=1e-9,
        )


@exercise("02.2")
def interpolate(answer: Any) -> None:
    """The answer walks in equal steps from one noise vector to another."""
    generator = torch.Generator().manual_seed(7)
    start, stop = torch.rand(2, 100, generator=generator) * 2 - 1
    for steps in (2, 3, 6):
        path = call(answer, start.clone(), stop.clone(), steps)
        case = f"{steps} steps"
        expect(f"{case}, shape", tuple(getattr(path, "shape", ())), (steps, 100))
        for index in range(steps):
            share = index / (steps - 1)
            wanted = (1 - share) * start + share * stop
            expect(f"{case}, row {index}", path[index], wanted, tolerance=1e-5)
