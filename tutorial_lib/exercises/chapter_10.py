"""Checks of notebook 10: whom the ranks wait for, and how they agree."""

from __future__ import annotations

from typing import Any

from tutorial_lib.exercises.cases import call, expect, require
from tutorial_lib.exercises.verdict import exercise

STUCK: dict[str, tuple[dict[int, tuple[int, bool]], list[int]]] = {
    "one rank computes, the others wait": ({0: (57, True), 1: (56, False), 2: (57, True)}, [1]),
    "all ranks are in the same collective": ({0: (8, True), 1: (8, True)}, []),
    "one rank waits in an earlier collective": ({0: (5, True), 1: (5, True), 2: (4, True)}, [2]),
    "two of four ranks are behind": (
        {3: (2, False), 2: (9, True), 1: (9, True), 0: (2, True)},
        [0, 3],
    ),
    "three ranks, each further than the last": (
        {0: (3, True), 1: (2, True), 2: (1, False)},
        [2],
    ),
    "a rank that has begun none": ({0: (0, False), 1: (1, True)}, [0]),
    "a single rank": ({0: (4, False)}, []),
}


@exercise("10.1")
def held_up_by(answer: Any) -> None:
    """The answer names the ranks that hold up the others."""
    for name, (ranks, expected) in STUCK.items():
        found = call(answer, dict(ranks))
        is_idle = found == [rank for rank in sorted(ranks) if not ranks[rank][1]]
        hint = "A rank can wait and hold up others all the same" if is_idle else ""
        expect(f"{name}, {ranks}", found, expected, hint=hint)


@exercise("10.2")
def steps(answer: Any) -> None:
    """The answer is ``{rank: steps}``, as many steps as every rank has batches for."""
    require(isinstance(answer, dict) and answer, "expected {rank: steps}: pass ranks.pull('steps')")
    batches = [3 + (5 * rank + 4) % 7 for rank in range(len(answer))]
    for rank, found in answer.items():
        hint = ""
        if found == batches[rank]:
            hint = "This is how many batches the rank itself has"
        elif found == sum(batches):
            hint = "This is the sum of all ranks' batches"
        expect(f"steps on rank {rank}, with batches {batches}", found, min(batches), hint=hint)
