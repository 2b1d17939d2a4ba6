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


class ColumnQuantizer:
    """Quantises the columns of matrices, each by its own two numbers.

    With 1 bit a column keeps the mean of its negative and the mean of its other elements, and
    which of both each element is. With more, it keeps the ends of a range that reaches four root
    mean squares to either side of 0, and in which of its 2^bits parts each element lies.

    A packed column is a column of 32-bit words: the two numbers, then the elements, low bits first.

    Args:
        bits: 1, 2, 4, 8 or 16.

    Raises:
        ValueError: Less than one bit: give one of the above.
        RuntimeError: Another number of bits: give one of the above.

    **Source:** CNTK's ``ColumnQuantizer``; Seide et al., 1-bit stochastic gradient descent, 2014.
    """

    def __init__(self, bits: int) -> None:
        check_bits(bits)
        self.bits = bits
        self._per_word = WORD_BITS // bits
        self._constants: dict[torch.device, tuple[Tensor, Tensor]] = {}

    def words(self, rows: int) -> int:
        """Return the number of words of a packed column."""
        return SCALES + -(-rows // self._per_word)

    def quantize(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Quantise each column.

        Args:
            values: (rows, columns), float32, contiguous; a -0.0 would count as negative.

        Returns:
            The packed columns, (words, columns) int32; and what ``dequantize`` makes of them,
            (rows, columns) float32.
        """
        codes, scales = self._encode(values)
        packed = torch.cat([scales.view(torch.int32), self._pack(codes)])
        return packed, self._decode(codes, scales)

    def dequantize(self, packed: Tensor, rows: int) -> Tensor:
        """Return the values that packed columns stand for.

        Args:
            packed: (..., words, columns) int32.
            rows: Elements of a column.

        Returns:
            (..., rows, columns) float32.
        """
        scales, words = packed.split([SCALES, packed.shape[-2] - SCALES], dim=-2)
        return self._decode(self._unpack(words, rows), scales.contiguous().view(torch.float32))

    def _encode(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return a code for each element and the two numbers of each column, (2, columns)."""
        rows = values.shape[0]
        if self.bits == 1:
            # The sign bit, spread over the word: -1 for a negative element, 0 for another.
            codes = values.view(torch.int32) >> WORD_BITS - 1
            negatives = codes.sum(0, dtype=torch.int32).neg_()
            sums = torch.stack([values.clamp(max=0).sum(0), values.clamp(min=0).sum(0)])
            counts = torch.stack([negatives, rows - negatives])
            return codes, sums.div_(counts.clamp_(min=1))
        limit = 4 * ((values * values).sum(0) / rows).sqrt_()
        # Where the range is too small for a division, _decode returns its lower end.
        steps = self._last_code / (limit * 2).clamp_(min=SMALLEST_RANGE)
        codes = ((values + limit) * steps).to(torch.int32).clamp_(0, self._last_code)
        return codes, torch.stack([-limit, limit])

    def _decode(self, codes: Tensor, scales: Tensor) -> Tensor:
        low, high = scales.narrow(-2, 0, 1), scales.narrow(-2, 1, 1)
        if self.bits == 1:
            # Chooses by bits: a masked choice in floating point takes twenty times as long.
            low, high = low.view(torch.int32), high.view(torch.int32)
            return (codes & (low ^ high)).bitwise_xor_(high).view(torch.float32)
        step = (high - low) / self._last_code
        step = step * (high - low >= SMALLEST_RANGE)
        return codes.to(torch.float32).add_(0.5).mul_(step).add_(low)

    @property
    def _last_code(self) -> int:
        return (1 << self.bits) - 1

    def _pack(self, codes: Tensor) -> Tensor:
        """Pack (rows, columns) codes into (words, columns), a word's bits down the column."""
        missing = -codes.shape[0] % self._per_word
        if missing:
            codes = torch.nn.functional.pad(codes, (0, 0, 0, missing))
        _, weights = self._places(codes.device)
        parts: Tensor = codes.unflatten(0, (-1, self._per_word)) * weights
        return parts.sum(1, dtype=torch.int32)

    def _unpack(self, words: Tensor, rows: int) -> Tensor:
        """Unpack (..., words, columns) into (..., rows, columns) codes."""
        shifts, _ = self._places(words.device)
        words = words.unsqueeze(-2)
        if self.bits == 1:
            codes = (words << WORD_BITS - 1 - shifts).bitwise_right_shift_(WORD_BITS - 1)
        else:
            codes = (words >> shifts).bitwise_and_(self._last_code)
        return codes.flatten(-3, -2).narrow(-2, 0, rows)

    def _places(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return where in a word each element begins, and what its code weighs there."""
        if device not in self._constants:
            elements = torch.arange(self._per_word, dtype=torch.int32, device=device)
            shifts = (elements * self.bits).unsqueeze(1)
            # The one-bit code of a negative element is -1, and the others' are 0.
            one = -1 if self.bits == 1 else 1
            self._constants[device] = shifts, torch.full_like(shifts, one) << shifts
        return self._constants[device]
