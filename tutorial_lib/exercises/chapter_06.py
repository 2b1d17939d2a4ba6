"""Checks of notebook 06: learners."""

from __future__ import annotations

import math
from typing import Any

from tutorial_lib.exercises.cases import call, expect, require
from tutorial_lib.exercises.verdict import exercise
from tutorial_lib.learners.schedules import (
    momentum_as_time_constant_schedule,
    momentum_for,
)

# (kind, distributed_after, is_marked) of each learner, and whether they train together
MIXES: list[tuple[list[tuple[str, int, bool]], bool]] = [
    ([("local", 0, False)], True),
    ([("distributed", 0, False)], True),
    ([("local", 0, False), ("local", 0, False)], True),
    ([("local", 0, False), ("distributed", 0, True)], False),
    ([("distributed", 0, False), ("distributed", 0, False)], False),
    ([("distributed", 0, True), ("distributed", 0, False)], True),
    ([("distributed", 0, True), ("distributed", 0, True)], False),
    ([("distributed", 0, True), ("distributed", 4096, False)], False),
    ([("local", 7, True), ("local", 0, True)], True),
    ([("distributed", 9, False), ("distributed", 9, False), ("distributed", 9, True)], True),
]


@exercise("06.1")
def time_constant(answer: Any) -> None:
    """The answer is the time constant of a momentum per minibatch."""
    for momentum, n in [(0.9, 512), (0.9, 1024), (0.5, 1), (0.99, 64), (0.0, 128)]:
        found = call(answer, momentum, n)
        case = f"momentum {momentum:g} per minibatch of {n}"
        expected = -n / math.log(momentum) if momentum else 0.0
        is_negative = isinstance(found, float) and found < 0
        hint = "A logarithm of less than 1 is negative" if is_negative else ""
        expect(case, found, expected, tolerance=1e-6 * max(1.0, expected), hint=hint)
        schedule = momentum_as_time_constant_schedule(float(found))
        left = momentum_for(schedule.at(0), schedule.reference_size, n)
        expect(f"{case}, what is left after {n} samples", left, momentum, tolerance=1e-6)


@exercise("06.2")
def first_step(answer: Any) -> None:
    """The answer is FSAdaGrad's very first change of a parameter."""
    for lr, momentum, n, gradient in [
        (0.5, 0.9, 4, 8.0),
        (0.5, 0.9, 4, -8.0),
        (0.001, 0.999, 256, 3000.0),
        (0.5, 0.0, 16, 0.01),
        (0.5, 0.9, 4, -0.125),
        (0.5, 0.9, 4, 0.0),
    ]:
        expected = first_step_of(lr, momentum, n, gradient)
        found = call(answer, lr, momentum, n, gradient)
        expect(
            f"lr {lr:g}, momentum {momentum:g}, {n} samples, gradient {gradient:g}",
            found,
            expected,
            tolerance=1e-6 * abs(expected),
            hint=_first_step_hint(found, expected, abs(gradient) < math.sqrt(n) / 10),
        )


def first_step_of(lr: float, momentum: float, n: int, gradient: float) -> float:
    """Return FSAdaGrad's first change of a parameter, with unit gain."""
    scaled = math.copysign(min(math.sqrt(n), 10 * abs(gradient)), gradient)
    return -lr * (1 - momentum**n) * scaled


def _first_step_hint(found: Any, expected: float, is_capped: bool) -> str:
    if not isinstance(found, int | float) or not expected:
        return ""
    if math.isclose(found, -expected, rel_tol=1e-6):
        return "The step goes against the gradient"
    return "The factor is at most 10" if is_capped and abs(found) > abs(expected) else ""


@exercise("06.3")
def trains(answer: Any) -> None:
    """The answer tells which learners train together."""
    for learners, expected in MIXES:
        found = call(answer, list(learners))
        require(
            found == expected,
            f"{learners}: expected {expected}, found {found!r}. {_reason(learners)}",
        )


def _reason(learners: list[tuple[str, int, bool]]) -> str:
    distributed = [learner for learner in learners if learner[0] == "distributed"]
    if not distributed:
        return "Local learners always may"
    if len(distributed) < len(learners):
        return "Local and distributed learners don't mix"
    if len(distributed) == 1:
        return "A sole learner needs no mark"
    if len({after for _, after, _ in distributed}) > 1:
        return "They must begin to work together after equally many samples"
    return "Just one of several must be marked"
