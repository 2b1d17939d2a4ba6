"""Bytes of packed gradients are those that are sent; the time of packing needs no other rank."""

from __future__ import annotations

import pytest
import torch

from tutorial_lib.learners.aggregation import QuantizedAggregation
from tutorial_lib.learners.quantization import LEGAL_BITS
from tutorial_lib.learners.quantizing_time import (
    Elsewhere,
    gradient_bytes,
    quantizing_s,
    striped_shapes,
)

SHAPES = [(12, 7), (12,), (1, 12), (1,)]


@pytest.mark.parametrize("bits", LEGAL_BITS)
@pytest.mark.parametrize("ranks", [2, 3])
def test_bytes_are_what_the_aggregation_sends(bits: int, ranks: int) -> None:
    gradients = [torch.ones(shape) for shape in SHAPES]
    aggregation = QuantizedAggregation(gradients, bits, Elsewhere(ranks))
    aggregation.aggregate(gradients)
    whole = gradient_bytes(SHAPES, bits)
    own = aggregation._counts[0] * 4
    assert aggregation.bytes_sent == (whole - own) + (ranks - 1) * own


def test_float32_is_four_bytes_each() -> None:
    assert gradient_bytes(SHAPES, 32) == 4 * (84 + 12 + 12 + 1)


def test_equal_ranks_elsewhere_sum_to_as_many_times_the_gradient() -> None:
    gradient = torch.full((4, 6), 0.5)
    aggregation = QuantizedAggregation([gradient], 1, Elsewhere(3))
    aggregation.aggregate([gradient])
    assert torch.equal(gradient[:, :2], torch.full((4, 2), 1.5))  # the columns that rank 0 owns


def test_stripes_are_the_largest_part() -> None:
    assert striped_shapes(SHAPES, 4) == [(12, 2), (12, 1), (1, 3), (1, 1)]
    assert striped_shapes(SHAPES, 1) == [(12, 7), (12, 1), (1, 12), (1, 1)]


def test_time_is_of_this_machine_and_none_where_nothing_is_done() -> None:
    threads = torch.get_num_threads()
    assert quantizing_s(SHAPES, 1, 2) > 0
    assert torch.get_num_threads() == threads
    assert quantizing_s(SHAPES, 1, 1) == quantizing_s(SHAPES, 32, 8) == 0
