"""The checks of chapter 08 accept right answers in other words, and name mistakes."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from tutorial_lib.exercises.verdict import verdict


def sizes_by_torch(side, kernel, stride, before, after):
    padded = torch.zeros(1, 1, side + before + after)
    down = nn.Conv1d(1, 1, kernel, stride)(padded).shape[2]
    up = nn.ConvTranspose1d(1, 1, kernel, stride)(torch.zeros(1, 1, side)).shape[2]
    return np.array([down, up - before - after])


def sizes_rounded_up(side, kernel, stride, before, after):
    down = math.ceil((side + before + after - kernel) / stride) + 1
    return down, (side - 1) * stride + kernel - before - after


def always_a_share(running, mean, n, seen):
    return running + (1 - math.exp(-n / 5000)) * (mean - running)


def remembered(running, mean, n, seen):
    return mean if seen == 0 else always_a_share(running, mean, n, seen)


def by_moments(means, variances, counts):
    mean = (means * counts).sum() / counts.sum()
    return mean, ((variances + means**2) * counts).sum() / counts.sum() - mean**2


def mean_of_variances(means, variances, counts):
    return np.average(means, weights=counts), np.average(variances, weights=counts)


@pytest.mark.parametrize(
    ("name", "answer"), [("08.1", sizes_by_torch), ("08.2", remembered), ("08.3", by_moments)]
)
def test_right_answers_pass(name, answer):
    found = verdict(name, answer)
    assert found.status == "PASS", found.detail


@pytest.mark.parametrize(
    ("name", "answer", "told"),
    [
        ("08.1", sizes_rounded_up, "the last window must fit"),
        ("08.2", always_a_share, "the running mean is only a start value"),
        ("08.3", mean_of_variances, "that is variance too"),
    ],
)
def test_mistakes_are_named(name, answer, told):
    found = verdict(name, answer)
    assert found.status == "NOT YET"
    assert told in found.detail
