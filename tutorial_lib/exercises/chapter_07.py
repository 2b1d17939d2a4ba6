"""Checks of notebook 07: one-bit SGD and block momentum."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tutorial_lib.exercises.cases import as_numbers, call, expect, require
from tutorial_lib.exercises.verdict import exercise

Column = NDArray[np.float64]

COLUMNS = (
    [3.0, -1.0, 1.0, -5.0],
    [2.0, 4.0],
    [-2.0, -4.0],
    [0.0, -1.0, 6.0],
    [0.0, 0.0],
)


@exercise("07.1")
def one_bit(answer: Any) -> None:
    """The answer replaces a column's elements by the mean of their half."""
    for values in COLUMNS:
        column = np.array(values)
        found = call(answer, column.copy())
        numbers = as_numbers(found)
        is_nan = numbers is not None and numbers.dtype.kind == "f" and np.isnan(numbers).any()
        hint = "The mean of no numbers is nan" if is_nan else ""
        expect(f"column {values}", found, _quantize(column), tolerance=1e-9, hint=hint)


@exercise("07.2")
def with_feedback(answer: Any) -> None:
    """The answer sends gradients with error feedback, whatever the quantiser."""
    gradients = np.array([[1.0, 0.25, -0.5], [1.0, 0.25, -0.5], [0.5, -2.0, 1.25], [0.0, 0.5, 0.5]])
    for name, quantize in (
        ("one bit", _quantize),
        ("rounding", np.rint),
        ("nothing", np.zeros_like),
    ):
        given = gradients.copy()
        found = as_numbers(call(answer, given, quantize))
        require(found is not None, f"{name}: expected an array with a row for each gradient")
        assert found is not None
        require(np.array_equal(given, gradients), f"{name}: the caller's gradients were changed")
        residual, sent = np.zeros(3), []
        for gradient in gradients:
            sent.append(quantize(gradient + residual))
            residual = gradient + residual - sent[-1]
        plain = np.array([quantize(gradient) for gradient in gradients])
        is_plain = found.shape == plain.shape and np.allclose(found, plain)
        hint = "What was left out is thrown away here" if is_plain else ""
        expect(f"{name}, rows sent", found, np.array(sent), tolerance=1e-9, hint=hint)


@exercise("07.3")
def meet(answer: Any) -> None:
    """The answer is where ranks go on from after a meeting, and the smoothed move."""
    for start, ends, bm, smoothed in [
        (1.0, [0.5, 0.25], 0.0, 0.0),
        (1.0, [0.5, 0.25], 0.5, 0.0),
        (1.0, [0.5, 0.25], 0.5, 0.75),
        (-2.0, [-2.0, -2.0, -2.0], 0.75, 1.0),
        (0.0, [1.0, 2.0, 3.0], 0.5, -1.0),
    ]:
        moved = sum(start - end for end in ends)
        mixed = bm * smoothed + (1 - bm) * moved
        found = call(answer, start, list(ends), bm, smoothed)
        mean = bm * smoothed + (1 - bm) * moved / len(ends)
        numbers = as_numbers(found)
        is_mean = numbers is not None and np.allclose(numbers, (start - mean, mean))
        hint = "Take the sum of the moves, not their mean" if is_mean and moved else ""
        case = f"start {start:g}, ends {ends}, bm {bm:g}, smoothed {smoothed:g}"
        expect(case, found, (start - mixed, mixed), tolerance=1e-9, hint=hint)


def _quantize(column: Column) -> Column:
    result = np.zeros_like(column)
    for half in (column < 0, column >= 0):
        if half.any():
            result[half] = column[half].mean()
    return result
