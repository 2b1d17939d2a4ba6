import math

import pytest
import torch
from torch import Tensor

from tutorial_lib.learners.quantization import (
    LEGAL_BITS,
    ColumnQuantizer,
    PackedColumns,
    check_bits,
    packed_words,
)

every_width = pytest.mark.parametrize("bits", LEGAL_BITS)
SHAPES = [(128, 10), (1, 7), (784, 3), (33, 5), (5, 1), (4, 0)]


def quantized(bits: int, values: Tensor) -> tuple[PackedColumns, Tensor]:
    rows, columns = values.shape
    packed = PackedColumns.empty(rows, columns, bits)
    restored = ColumnQuantizer(bits, rows, columns).quantize(values, packed)
    return packed, restored.clone()


def one_bit(column: list[float]) -> list[float]:
    negative, other = [v for v in column if v < 0], [v for v in column if v >= 0]
    mean0 = sum(negative) / len(negative) if negative else 0.0
    mean1 = sum(other) / len(other) if other else 0.0
    return [mean0 if v < 0 else mean1 for v in column]


def several_bits(column: list[float], bits: int) -> list[float]:
    high = 4 * math.sqrt(sum(v * v for v in column) / len(column))
    low, used = -high, 2**bits - 1
    codes = [
        0 if v <= low else used if v >= high else int((v - low) * used / (high - low))
        for v in column
    ]
    return [(code + 0.5) * (high - low) / used + low for code in codes]


@every_width
@pytest.mark.parametrize("shape", SHAPES)
def test_columns_are_quantised_by_the_rule(bits: int, shape: tuple[int, int]) -> None:
    values = torch.randn(shape, generator=torch.Generator().manual_seed(bits))
    _, restored = quantized(bits, values)
    for column, found in zip(values.t().tolist(), restored.t().tolist(), strict=True):
        wanted = one_bit(column) if bits == 1 else several_bits(column, bits)
        # An element at the border of two codes may fall either way.
        step = 8 * math.sqrt(sum(v * v for v in column) / len(column)) / (2**bits - 1)
        gaps = [abs(a - b) for a, b in zip(wanted, found, strict=True)]
        assert max(gaps) <= 1.01 * step
        assert sum(gap > 1e-5 for gap in gaps) <= (len(gaps) // 50 if bits == 16 else 0)


@every_width
@pytest.mark.parametrize("shape", SHAPES)
def test_what_arrives_is_what_was_kept(bits: int, shape: tuple[int, int]) -> None:
    values = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    packed, restored = quantized(bits, values)
    assert torch.equal(ColumnQuantizer(bits, *shape).dequantize(packed), restored)


@every_width
def test_a_packed_column_is_as_small_as_it_should_be(bits: int) -> None:
    for rows in (1, 31, 32, 33, 784):
        assert packed_words(rows, bits) == 2 + math.ceil(rows / (32 // bits))


@every_width
def test_zeros_stay_zeros(bits: int) -> None:
    _, restored = quantized(bits, torch.zeros(9, 4))
    assert torch.equal(restored, torch.zeros(9, 4))


@every_width
def test_columns_do_not_touch_each_other(bits: int) -> None:
    values = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
    _, together = quantized(bits, values)
    for number in range(6):
        _, alone = quantized(bits, values[:, number : number + 1].contiguous())
        torch.testing.assert_close(alone[:, 0], together[:, number], rtol=1e-6, atol=1e-6)


@every_width
def test_a_quantizer_forgets_the_matrix_before(bits: int) -> None:
    quantizer = ColumnQuantizer(bits, 37, 3)
    packed = PackedColumns.empty(37, 3, bits)
    for seed in range(3):
        values = torch.randn(37, 3, generator=torch.Generator().manual_seed(seed))
        fresh_packed, fresh = quantized(bits, values)
        assert torch.equal(quantizer.quantize(values, packed), fresh)
        assert torch.equal(packed.elements, fresh_packed.elements)


def test_more_bits_leave_out_less() -> None:
    values = torch.randn(784, 20, generator=torch.Generator().manual_seed(3)).clamp_(-2, 2)
    errors = [(values - quantized(bits, values)[1]).norm().item() for bits in (2, 4, 8, 16)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-3 * errors[0]


@pytest.mark.parametrize("bits", [3, 5, 12, 31])
def test_bits_that_do_not_divide_a_word_are_refused(bits: int) -> None:
    with pytest.raises(RuntimeError, match="Quantization: 'nbits' must be a divisor of 64"):
        check_bits(bits)


@pytest.mark.parametrize("bits", [0, -1])
def test_no_bits_are_refused(bits: int) -> None:
    with pytest.raises(ValueError, match="num_quantization_bits"):
        check_bits(bits)


@pytest.mark.parametrize("bits", [*LEGAL_BITS, 32, 33, 64])
def test_other_bits_are_legal(bits: int) -> None:
    check_bits(bits)
