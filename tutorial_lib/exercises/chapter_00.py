"""Checks of notebook 00: start here."""

from __future__ import annotations

from typing import Any

from tutorial_lib.exercises.cases import call, difference, expect, require
from tutorial_lib.exercises.verdict import exercise


@exercise("00.1")
def sum_of_ranks(answer: Any) -> None:
    """The answer maps a world size to the sum of all its ranks."""
    for world_size in range(1, 9):
        expect(
            f"{world_size} ranks, numbered 0 to {world_size - 1}",
            call(answer, world_size),
            sum(range(world_size)),
        )


@exercise("00.2")
def shared_sum(answer: Any) -> None:
    """The answer is ``{rank: total}``, the sum of 0 to 99 on every rank."""
    require(isinstance(answer, dict) and answer, "expected {rank: total}: pass ranks.pull('total')")
    for rank, total in answer.items():
        is_partial = not difference(sum(answer.values()), 4950) and len(answer) > 1
        expect(
            f"total on rank {rank}",
            total,
            4950,
            hint="These are the parts: add them up over the ranks with allreduce"
            if is_partial
            else "",
        )
