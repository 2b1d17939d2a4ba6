"""Checks of notebook 11: one model, many ranks."""

from __future__ import annotations

import math
from typing import Any

from tutorial_lib.data.partition import partition_bounds
from tutorial_lib.exercises.cases import call, expect, require
from tutorial_lib.exercises.verdict import exercise


@exercise("11.1")
def steps_of_each(answer: Any) -> None:
    """The answer shares out a budget of steps, also an endless one."""
    for max_iteration, world_size, expected in [
        (100, 4, 25),
        (100, 3, 33),
        (7, 1, 7),
        (math.inf, 1, math.inf),
        (math.inf, 2, math.inf),
    ]:
        found = call(answer, max_iteration, world_size)
        is_nan = isinstance(found, float) and math.isnan(found)
        expect(
            f"{max_iteration} steps for {world_size} ranks",
            found,
            expected,
            hint="inf // n is nan, and no step number is ever >= nan" if is_nan else "",
        )


@exercise("11.2")
def mean_of_all(answer: Any) -> None:
    """The answer makes one mean of all ranks' minibatches, each weighed by its samples."""
    for ranks in (
        [[(0.5, 10), (0.9, 10)]],
        [[(1.0, 8), (0.0, 2)]],
        [[(0.5, 8), (0.5, 8)], [(1.0, 8), (0.0, 1)]],
        [[(0.25, 4)], [(1.0, 3)], []],
    ):
        pairs = [pair for rank in ranks for pair in rank]
        expected = sum(mean * count for mean, count in pairs) / sum(n for _, n in pairs)
        own = [sum(m for m, _ in rank) / len(rank) for rank in ranks if rank]
        found = call(answer, [list(rank) for rank in ranks])
        is_theirs = isinstance(found, float) and math.isclose(found, sum(own) / len(own))
        hint = "This is the mean of the means" if is_theirs else ""
        expect(f"(mean, samples) {ranks}", found, expected, tolerance=1e-9, hint=hint)


@exercise("11.3")
def local_sizes(answer: Any) -> None:
    """The answer cuts an epoch into steps that all ranks take, with all samples in them."""
    for n, world_size, batch_size in [(100, 2, 10), (23, 2, 4), (23, 3, 4), (5, 4, 1), (1, 4, 8)]:
        ranks = [call(answer, n, world_size, rank, batch_size) for rank in range(world_size)]
        case = f"{n} samples, {world_size} ranks with {batch_size} each"
        steps = [len(list(sizes)) for sizes in ranks]
        require(len(set(steps)) == 1, f"{case}: the ranks take {steps} steps, and one would wait")
        total = sum(sum(sizes) for sizes in ranks)
        require(total == n, f"{case}: {total} samples in all, expected {n}")
        for rank, sizes in enumerate(ranks):
            whole = batch_size * world_size
            starts = range(0, n, whole)
            bounds = [partition_bounds(min(whole, n - s), world_size, rank) for s in starts]
            expect(f"{case}, rank {rank}", list(sizes), [stop - start for start, stop in bounds])


@exercise("11.4")
def scaled(answer: Any) -> None:
    """The answer scales a rate and leaves the caller's keywords alone."""
    given = {"lr": 0.25, "betas": (0.9, 0.99)}
    found = call(answer, given, 4)
    require(
        given == {"lr": 0.25, "betas": (0.9, 0.99)},
        f"the caller's dictionary was changed: {given}",
    )
    expect("{'lr': 0.25, 'betas': (0.9, 0.99)} for 4 ranks", found, {**given, "lr": 1.0})
    again = call(answer, given, 4)
    expect("the same once more", again, {**given, "lr": 1.0})
