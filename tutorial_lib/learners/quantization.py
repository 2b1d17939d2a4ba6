"""Columns of a gradient in few bits: quantise, pack into words, and back."""

from __future__ import annotations

import torch
from torch import Tensor

LEGAL_BITS = (1, 2, 4, 8, 16)
PLAIN_BITS = 32
WORD_BITS = 32
SMALLEST_RANGE = 1e-36
SCALES = 2  # words of a packed column that hold its two floats


def check_bits(bits: int) -> None:
    """Refuse a number of bits that can't be packed.

    Args:
        bits: Bits per element; ``PLAIN_BITS`` and more stand for no quantisation.

    Raises:
        ValueError: Less than one bit: give 1, 2, 4, 8, 16 or 32.
        RuntimeError: A number of bits that doesn't divide a word: give one of the above.
    """
    if bits < 1:
        raise ValueError(f"num_quantization_bits is {bits}; give 1, 2, 4, 8, 16 or 32")
    if bits < PLAIN_BITS and bits not in LEGAL_BITS:
        raise RuntimeError("Quantization: 'nbits' must be a divisor of 64")


def packed_words(rows: int, bits: int) -> int:
    """Return the number of 32-bit words that a packed column of so many rows takes."""
    return SCALES + -(-rows // (WORD_BITS // bits))


class PackedColumns:
    """Columns as they travel: each is two floats, then its elements, low bits first.

    Args:
        words: (words, columns) int32, contiguous; the memory to use.
    """

    def __init__(self, words: Tensor) -> None:
        self.scales = words[:SCALES].view(torch.float32)
        self.low, self.high = self.scales
        self.low_bits, self.high_bits = words[:SCALES]
        self.elements = words[SCALES:]
        self.spread = self.elements.unsqueeze(1)

    @classmethod
    def empty(
        cls, rows: int, columns: int, bits: int, device: torch.device | str = "cpu"
    ) -> PackedColumns:
        """Return columns in memory of their own, with nothing in them yet."""
        size = (packed_words(rows, bits), columns)
        return cls(torch.empty(size, dtype=torch.int32, device=device))


class ColumnQuantizer:
    """Quantises the columns of matrices of one shape, each column by its own two numbers.

    With 1 bit a column keeps the mean of its negative and the mean of its other elements, and
    which of both each element is. With more, it keeps the ends of a range that reaches four root
    mean squares to either side of 0, and in which of its 2^bits parts each element lies.

    Args:
        bits: 1, 2, 4, 8 or 16.
        rows: Elements of a column.
        columns: Their number.
        device: Of the matrices.

    Raises:
        ValueError: Less than one bit: give one of the above.
        RuntimeError: Another number of bits: give one of the above.

    **Source:** CNTK's ``ColumnQuantizer``; Seide et al., 1-bit stochastic gradient descent, 2014.
    """

    def __init__(
        self, bits: int, rows: int, columns: int, device: torch.device | str = "cpu"
    ) -> None:
        check_bits(bits)
        self.bits = bits
        self.rows = rows
        self.columns = columns
        self._last_code = (1 << bits) - 1
        per_word = WORD_BITS // bits
        words = packed_words(rows, bits) - SCALES
        # Memory that every call uses again: fresh memory would cost more than the arithmetic.
        self._places = torch.zeros(words, per_word, columns, dtype=torch.int32, device=device)
        self._codes = self._places.flatten(0, 1)[:rows]
        self._values = torch.empty(rows, columns, device=device)
        self._bits = self._values.view(torch.int32)
        wide_shape = (0, columns) if bits == 1 else (rows, columns)
        self._wide = torch.empty(wide_shape, dtype=torch.float64, device=device)
        self._counts = self._codes.new_empty(2, columns)
        self._negatives, self._others = self._counts
        self._sign_place = self._codes.new_tensor(WORD_BITS - 1)
        shifts = torch.arange(per_word, dtype=torch.int32, device=device).mul_(bits).unsqueeze_(1)
        self._shifts = self._sign_place - shifts if bits == 1 else shifts
        # The one-bit code of a negative element is -1, and the others' are 0.
        self._weights = torch.full_like(shifts, -1 if bits == 1 else 1) << shifts

    def quantize(self, values: Tensor, packed: PackedColumns) -> Tensor:
        """Quantise each column.

        Args:
            values: (rows, columns), float32, contiguous; a -0.0 would count as negative.
            packed: Takes the result.

        Returns:
            What ``dequantize`` makes of it, (rows, columns) float32; until the next call.
        """
        self._encode(values, packed)
        restored = self._decode(packed)
        torch.sum(self._places.mul_(self._weights), 1, dtype=torch.int32, out=packed.elements)
        return restored

    def dequantize(self, packed: PackedColumns) -> Tensor:
        """Return the values that packed columns stand for, (rows, columns); until the next call."""
        if self.bits == 1:
            torch.bitwise_left_shift(packed.spread, self._shifts, out=self._places)
            self._places.bitwise_right_shift_(self._sign_place)
        else:
            torch.bitwise_right_shift(packed.spread, self._shifts, out=self._places)
            self._places.bitwise_and_(self._last_code)
        return self._decode(packed)

    def _encode(self, values: Tensor, packed: PackedColumns) -> None:
        """Find each column's two numbers, and a code for each element."""
        if self.bits == 1:
            # The sign bit, spread over the word: -1 for a negative element, 0 for another.
            torch.bitwise_right_shift(values.view(torch.int32), self._sign_place, out=self._codes)
            torch.sum(self._codes, 0, dtype=torch.int32, out=self._negatives)
            torch.add(self._negatives, self.rows, out=self._others)
            torch.sum(torch.clamp(values, max=0, out=self._values), 0, out=packed.low)
            torch.sum(torch.clamp(values, min=0, out=self._values), 0, out=packed.high)
            packed.scales.div_(self._counts.abs_().clamp_(min=1))
            return
        # In double precision, as CNTK's numbers show: in 16 bits, float32 would give one element
        # in twelve the code beside its own.
        limit, wide = packed.high, self._wide.copy_(values)
        limit.copy_(wide.square_().sum(0).div_(self.rows).sqrt_()).mul_(4)
        torch.neg(limit, out=packed.low)
        # Where the range is too small for a division, _decode returns its lower end.
        width = (limit.double() * 2).clamp_(min=SMALLEST_RANGE)
        # First times, then divided: so the upper end of the range has the last code exactly.
        wide.copy_(values).sub_(packed.low).mul_(self._last_code).div_(width)
        self._codes.copy_(wide.clamp_(0, self._last_code))

    def _decode(self, packed: PackedColumns) -> Tensor:
        """Return what the codes stand for."""
        if self.bits == 1:
            # Chooses by bits: a masked choice in floating point takes twenty times as long.
            torch.bitwise_and(self._codes, packed.low_bits ^ packed.high_bits, out=self._bits)
            self._bits.bitwise_xor_(packed.high_bits)
            return self._values
        width = packed.high - packed.low
        step = width.mul_(width >= SMALLEST_RANGE).div_(self._last_code)
        wide = self._wide.copy_(self._codes).add_(0.5).mul_(step).add_(packed.low)  # rounded once
        return self._values.copy_(wide)
