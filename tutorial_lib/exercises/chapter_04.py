"""Checks of notebook 04: the distributed GAN."""

from __future__ import annotations

from typing import Any

import numpy as np

from tutorial_lib.exercises.cases import as_numbers, call, expect, require
from tutorial_lib.exercises.verdict import exercise

NOISE_SIZE = 100


@exercise("04.1")
def noise_rows(answer: Any) -> None:
    """The answer gives each rank its own rows of noise, the same set for any number of ranks."""
    whole = _rows(answer, 1024, 1, 0, 123)
    require(len(whole) == 1024, f"1024 rows, 1 rank: expected 1024 rows, found {len(whole)}")
    require(
        whole.min() >= -1 and whole.max() < 1 and whole.min() < -0.99 and whole.max() > 0.99,
        f"values must fill -1 to 1, found {whole.min():.3g} to {whole.max():.3g}",
    )
    for size, world_size in [(1024, 2), (1024, 3), (1024, 4), (10, 4)]:
        case = f"{size} rows, {world_size} ranks"
        parts = [_rows(answer, size, world_size, rank, 123) for rank in range(world_size)]
        rows = np.concatenate(parts)
        distinct = len(np.unique(rows, axis=0))
        require(len(rows) == size, f"{case}: expected {size} rows in all, found {len(rows)}")
        require(distinct == size, f"{case}: only {distinct} of {size} rows are distinct")
        expect(
            f"{case}, all of their rows in rank order",
            rows,
            _rows(answer, size, 1, 0, 123),
            hint="They should be the rows that a single rank would get",
        )
    other = _rows(answer, 1024, 1, 0, 124)
    require(not np.array_equal(whole, other), "seeds 123 and 124 give the same noise")


def _rows(answer: Any, size: int, world_size: int, rank: int, seed: int) -> Any:
    rows = as_numbers(call(answer, size, world_size, rank, seed))
    case = f"{size} rows, {world_size} ranks, rank {rank}"
    require(rows is not None, f"{case}: expected an array or a tensor")
    assert rows is not None
    shape = ("n", NOISE_SIZE)
    require(
        rows.ndim == 2 and rows.shape[1] == NOISE_SIZE,
        f"{case}: expected shape {shape}, found {rows.shape}",
    )
    return rows


@exercise("04.2")
def mean_of_all(answer: Any) -> None:
    """The answer makes the mean gradient over all samples of the ranks' means and counts."""
    means = np.array([[1.0, 0.5], [2.0, -1.0], [4.0, 3.0]])
    for counts in ([4, 4, 4], [342, 341, 341], [4, 3, 3], [3, 0, 1]):
        expected = np.average(means, axis=0, weights=counts)
        plain = means.mean(axis=0)
        found = call(answer, means.copy(), list(counts))
        numbers = as_numbers(found)
        is_plain = (
            numbers is not None and numbers.shape == plain.shape and np.allclose(numbers, plain)
        )
        expect(
            f"means {means.tolist()} over {counts} samples",
            found,
            expected,
            tolerance=1e-9,
            hint="This is the mean of the means" if is_plain else "",
        )
