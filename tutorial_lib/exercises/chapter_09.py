"""Checks of notebook 09: from CNTK to PyTorch."""

from __future__ import annotations

from typing import Any

import torch

from tutorial_lib.exercises.cases import call, expect
from tutorial_lib.exercises.verdict import exercise

NUM_CHUNKS = 4  # of MNIST's training images in CNTK's text


@exercise("09.1")
def shuffled(answer: Any) -> None:
    """The answer shuffles as CNTK does, by given random numbers."""
    cases: list[tuple[list[Any], list[int]]] = [
        ([0, 1, 2], [1, 1, 1]),
        (["a", "b", "c", "d"], [7, 2, 9, 4]),
        ([0, 1, 2, 3, 4], [4, 4, 4, 4, 4]),
        ([5], [17]),
        ([], []),
    ]
    for values, numbers in cases:
        expected = list(values)
        for place, number in enumerate(numbers):
            other = number % len(values)
            expected[place], expected[other] = expected[other], expected[place]
        found = call(answer, list(values), list(numbers))
        expect(f"values {values}, numbers {numbers}", found, expected)


@exercise("09.2")
def misfits(answer: Any) -> None:
    """The answer lists the ranks whose images and noise differ in number."""
    for size, workers in [
        (1024, 1),
        (1024, 2),
        (1024, 3),
        (1024, 4),
        (1024, 5),
        (1000, 8),
        (10, 4),
    ]:
        share, rest = divmod(size, workers)
        images = [share + (r < rest) if r < NUM_CHUNKS else 0 for r in range(workers)]
        expected = [rank for rank, count in enumerate(images) if count != share]
        case = f"{size} samples, {workers} workers"
        expect(case, call(answer, size, workers), expected)


@exercise("09.3")
def place_in_stream(answer: Any) -> None:
    """The answer finds a weight's place in CNTK's stream of random numbers."""
    for inputs, outputs in [(3, 2), (2, 3), (1, 4), (100, 128)]:
        stream = torch.arange(inputs * outputs).view(inputs, outputs)
        weight = stream.T  # as a linear layer has it
        for o, i in {(0, 0), (outputs - 1, 0), (0, inputs - 1), (outputs // 2, inputs // 2)}:
            found = call(answer, o, i, inputs, outputs)
            other = o * inputs + i
            is_other = found == other and found != int(weight[o, i])
            hint = "This is the order of PyTorch's own matrix" if is_other else ""
            case = f"weight[{o}, {i}] of {inputs} inputs and {outputs} outputs"
            expect(case, found, int(weight[o, i]), hint=hint)
