"""Checks of notebook 08: DCGAN."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tutorial_lib.exercises.cases import call, expect
from tutorial_lib.exercises.verdict import exercise

# side, kernel, stride, pixels added before and after
CONVOLUTIONS = [
    (28, 5, 2, 0, 0),
    (12, 5, 2, 0, 0),
    (28, 5, 2, 2, 1),
    (14, 5, 2, 2, 1),
    (9, 3, 1, 1, 1),
]


@exercise("08.1")
def sizes(answer: Any) -> None:
    """The answer tells how large a convolution's output is, and that of its way back."""
    for side, kernel, stride, before, after in CONVOLUTIONS:
        case = f"side {side}, kernel {kernel}, stride {stride}, {before} before and {after} after"
        down = (side + before + after - kernel) // stride + 1
        up = (side - 1) * stride + kernel - before - after
        hint = f"There are {side + before + after} places, and the last window must fit"
        found = call(answer, side, kernel, stride, before, after)
        expect(case, found, (down, up), hint=hint)


@exercise("08.2")
def remembered(answer: Any) -> None:
    """The answer gives the new running mean after a minibatch."""
    for running, mean, n, seen in [
        (0.0, 3.0, 128, 0),
        (3.0, 1.0, 128, 128),
        (3.0, 1.0, 64, 128),
        (-1.0, 1.0, 5000, 256),
    ]:
        factor = 1.0 if seen == 0 else -math.expm1(-n / 5000)
        expected = running + factor * (mean - running)
        case = f"running {running}, minibatch of {n} with mean {mean}, {seen} samples seen before"
        hint = (
            "Nothing was seen before: the running mean is only a start value" if seen == 0 else ""
        )
        found = call(answer, running, mean, n, seen)
        expect(case, found, expected, tolerance=1e-6, hint=hint)


@exercise("08.3")
def of_all_ranks(answer: Any) -> None:
    """The answer gives mean and variance over all ranks' samples."""
    random = np.random.default_rng(8)
    for counts in ([4, 4], [5, 3], [2, 7, 1]):
        parts = [random.normal(rank, 1 + rank, count) for rank, count in enumerate(counts)]
        everything = np.concatenate(parts)
        found = call(
            answer,
            np.array([part.mean() for part in parts]),
            np.array([part.var() for part in parts]),
            np.array(counts),
        )
        hint = "The ranks' means differ from the mean of all, and that is variance too"
        expected = (everything.mean(), everything.var())
        expect(f"ranks with {counts} samples", found, expected, tolerance=1e-6, hint=hint)
