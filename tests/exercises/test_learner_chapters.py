"""The checks of chapters 06, 07 and 09 accept right answers in other words, and name mistakes."""

import math

import numpy as np
import pytest
import torch

from tutorial_lib.exercises.chapter_06 import first_step_of
from tutorial_lib.exercises.verdict import verdict
from tutorial_lib.learners.fsadagrad import fsadagrad
from tutorial_lib.learners.schedules import (
    learning_parameter_schedule_per_sample,
    momentum_schedule_per_sample,
)


def step(lr, momentum, n, gradient, cap=10.0):
    scaled = math.copysign(min(math.sqrt(n), cap * abs(gradient)), gradient)
    return -lr * (1 - momentum**n) * (scaled if gradient else 0.0)


def all_kinds_alike(learners):
    return len({kind for kind, *_ in learners}) == 1


def one_bit(column):
    halves = np.where(column < 0, -1, 1)
    return np.array([column[halves == half].mean() for half in halves])


def without_feedback(gradients, quantize):
    return np.array([quantize(gradient) for gradient in gradients])


def in_place(gradients, quantize):
    sent = []
    for gradient, after in zip(gradients, [*gradients[1:], np.zeros(3)], strict=True):
        sent.append(quantize(gradient))
        after += gradient - sent[-1]
    return np.array(sent)


def meet(start, ends, bm, smoothed):
    new = bm * smoothed + (1 - bm) * (len(ends) * start - sum(ends))
    return [start - new, new]


def mean_meeting(start, ends, bm, smoothed):
    new = bm * smoothed + (1 - bm) * (start - sum(ends) / len(ends))
    return start - new, new


def shuffled(values, numbers):
    order = list(range(len(values)))
    for i, number in enumerate(numbers):
        j = number % len(order)
        order[i], order[j] = order[j], order[i]
    return [values[place] for place in order]


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("06.1", lambda m, n: 0 if m == 0 else n / math.log(1 / m)),
        ("06.2", step),
        ("07.1", one_bit),
        ("07.3", meet),
        ("09.1", shuffled),
        ("09.2", lambda n, w: [r for r in range(w) if r < n % w or r > 3]),
        ("09.3", lambda o, i, inputs, outputs: o + outputs * i),
    ],
)
def test_other_right_answers_pass(name, answer):
    assert str(verdict(name, answer)) == "PASS"


@pytest.mark.parametrize(
    ("name", "answer", "told"),
    [
        ("06.1", lambda m, n: n / math.log(m) if m else 0.0, "less than 1 is negative"),
        ("06.1", lambda m, n: n * m, "momentum 0.9 per minibatch of 512: expected"),
        ("06.2", lambda *args: -step(*args), "The step goes against the gradient"),
        ("06.2", lambda *args: step(*args, cap=math.inf), "The factor is at most 10"),
        ("06.3", all_kinds_alike, "Just one of several must be marked"),
        ("06.3", lambda learners: sum(m for *_, m in learners) == 1, "Local learners always may"),
        ("06.3", lambda learners: True, "Local and distributed learners don't mix"),
        ("07.1", lambda column: np.sign(column) * np.abs(column).mean(), "column [3.0, -1.0"),
        ("07.2", without_feedback, "one bit, rows sent: at [1, 0] expected 1.375"),
        ("07.2", without_feedback, "What was left out is thrown away here"),
        ("07.2", in_place, "one bit: the caller's gradients were changed"),
        ("07.3", mean_meeting, "Take the sum of the moves, not their mean"),
        ("09.1", lambda values, numbers: values[::-1], "values [0, 1, 2], numbers [1, 1, 1]"),
        ("09.2", lambda n, w: [r for r in range(w) if r < n % w], "1024 samples, 5 workers"),
        ("09.3", lambda o, i, inputs, outputs: o * inputs + i, "PyTorch's own matrix"),
    ],
)
def test_mistake_is_told(name, answer, told):
    found = verdict(name, answer)
    assert found.status == "NOT YET"
    assert told in found.detail


@pytest.mark.parametrize("gradient", [8.0, -8.0, 0.125, -0.01, 0.0])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_the_first_step_is_the_learners(gradient, momentum):
    parameter = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    rates = learning_parameter_schedule_per_sample(0.5), momentum_schedule_per_sample(momentum)
    parameter.grad = torch.full_like(parameter, gradient)
    fsadagrad([parameter], *rates).update(16)
    assert parameter.item() == pytest.approx(first_step_of(0.5, momentum, 16, gradient), rel=1e-6)
