"""Checks of notebook 03: ranks and collectives."""

from __future__ import annotations

from typing import Any

from tutorial_lib.exercises.cases import call, expect, require
from tutorial_lib.exercises.verdict import exercise

LOGS: dict[str, tuple[dict[int, list[str]], int]] = {
    "equal logs": ({0: ["broadcast", "barrier"], 1: ["broadcast", "barrier"]}, -1),
    "an all_reduce against a broadcast": (
        {0: ["broadcast", "all_reduce"], 1: ["all_reduce", "broadcast"]},
        0,
    ),
    "a log that ends early": (
        {0: ["broadcast", "barrier", "all_reduce"], 1: ["broadcast", "barrier"]},
        2,
    ),
    "only the last of four ranks differs": (
        {r: ["barrier", "all_reduce" if r < 3 else "reduce"] for r in range(4)},
        1,
    ),
    "a rank that made no call at all": ({0: [], 1: ["barrier"], 2: ["barrier"]}, 0),
    "no calls on any rank": ({0: [], 1: []}, -1),
    "a single rank": ({0: ["broadcast", "barrier"]}, -1),
}


@exercise("03.1")
def best_rank(answer: Any) -> None:
    """The answer is ``{rank: best}``, the rank with the highest score, known on every rank."""
    require(isinstance(answer, dict) and answer, "expected {rank: best}: pass ranks.pull('best')")
    scores = [(4.0 * rank + 3) % 11 for rank in range(len(answer))]
    best = scores.index(max(scores))
    for rank, found in answer.items():
        is_score = found == max(scores) and found != best
        hint = "This is the best score; whose is it?" if is_score else ""
        expect(f"best on rank {rank}, with scores {scores}", found, best, hint=hint)


@exercise("03.2")
def first_mismatch(answer: Any) -> None:
    """The answer finds the first call in which not all ranks' logs agree."""
    for name, (logs, expected) in LOGS.items():
        expect(f"{name}, {logs}", call(answer, logs), expected)
