"""Checks of notebook 13: scaling out."""

from __future__ import annotations

import math
from typing import Any

from tutorial_lib.exercises.cases import as_numbers, call, expect
from tutorial_lib.exercises.verdict import exercise


@exercise("13.1")
def homes_of(answer: Any) -> None:
    """The answer fills hosts in order, and says where each rank lives."""
    for slots, n in (
        ({"node1": 2, "node2": 2}, 4),
        ({"node1": 2, "node2": 2}, 3),
        ({"a": 1, "b": 3, "c": 2}, 5),
        ({"alone": 4}, 2),
    ):
        expected = [host for host, count in slots.items() for _ in range(count)][:n]
        found = call(answer, dict(slots), n)
        deals = range(max(slots.values()))
        by_node = [host for deal in deals for host in slots if deal < slots[host]][:n]
        is_dealt = isinstance(found, list) and found == by_node != expected
        hint = "This deals ranks out by node; fill the first host first" if is_dealt else ""
        expect(f"{n} ranks on {slots}", found, expected, hint=hint)


@exercise("13.2")
def ring_s(answer: Any) -> None:
    """The answer computes how long an all-reduce along a ring takes."""
    for nbytes, ranks, latency_s, bytes_per_s in (
        (8e6, 4, 0.0, 1e9),
        (0.0, 4, 1e-3, 1e9),
        (1e6, 2, 2e-3, 1e8),
        (4e6, 1, 1e-3, 1e9),
        (1e9, 1024, 25e-6, 1.25e9),
    ):
        messages = 2 * (ranks - 1)
        expected = messages * (latency_s + nbytes / ranks / bytes_per_s)
        found = call(answer, nbytes, ranks, latency_s, bytes_per_s)
        whole = messages * (latency_s + nbytes / bytes_per_s)
        hint = ""
        if nbytes and ranks > 1 and _is_near(found, whole):
            hint = "A message of a ring holds one part, not the whole tensor"
        elif ranks > 1 and _is_near(found, expected / 2):
            hint = "Each part goes round twice: to be summed, and to be handed on"
        case = f"{nbytes:,.0f} bytes, {ranks} ranks, {latency_s:g} s, {bytes_per_s:g} bytes/s"
        expect(case, found, expected, tolerance=1e-9 + 1e-6 * expected, hint=hint)


@exercise("13.3")
def efficiency(answer: Any) -> None:
    """The answer computes the efficiency of strong and of weak scaling from times of steps."""
    for step_s, is_weak in (
        ({1: 0.8, 2: 0.5, 4: 0.4}, False),
        ({1: 0.8, 2: 1.0, 4: 1.6}, True),
        ({1: 0.5, 8: 0.0625}, False),
        ({1: 0.5, 1024: 0.5}, True),
    ):
        alone = step_s[1]
        expected = {n: alone / (s if is_weak else n * s) for n, s in step_s.items()}
        found = call(answer, dict(step_s), is_weak)
        other = {n: alone / (n * s if is_weak else s) for n, s in step_s.items()}
        is_other = isinstance(found, dict) and all(
            _is_near(found.get(n), value) for n, value in other.items()
        )
        hint = ""
        if is_other and is_weak:
            hint = "In weak scaling n ranks do n times the work in a step"
        elif is_other:
            hint = "This is the speed-up; efficiency is its share of the number of ranks"
        kind = "weak" if is_weak else "strong"
        expect(f"{kind}, seconds {step_s}", found, expected, tolerance=1e-9, hint=hint)


def _is_near(found: Any, value: float) -> bool:
    number = as_numbers(found)
    return number is not None and not number.shape and math.isclose(float(number), value)
