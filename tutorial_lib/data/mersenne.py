"""The 64-bit Mersenne Twister, with which CNTK draws weights and shuffles data."""

from __future__ import annotations

from collections.abc import MutableSequence
from typing import Any

import numpy as np
import numpy.typing as npt

WORDS = 312  # of state
MIDDLE = 156
MASK = 0xFFFF_FFFF_FFFF_FFFF
MATRIX = np.uint64(0xB502_6F5A_A966_19E9)
UPPER = np.uint64(0xFFFF_FFFF_8000_0000)
LOWER = np.uint64(0x7FFF_FFFF)
ONE = np.uint64(1)


class MersenneTwister64:
    """C++'s ``std::mt19937_64``: equal seeds give equal numbers in every language.

    NumPy's and Python's own Mersenne Twister is the 32-bit one, whose numbers are others.

    Args:
        seed: 0 to 2^64 - 1.

    **Source:** Matsumoto and Nishimura, mt19937-64 (2004).
    """

    def __init__(self, seed: int) -> None:
        words = [seed & MASK]
        for place in range(1, WORDS):
            last = words[-1]
            words.append((6364136223846793005 * (last ^ (last >> 62)) + place) & MASK)
        self._state = np.array(words, dtype=np.uint64)
        self._ready = np.empty(0, dtype=np.uint64)

    def draw(self, count: int) -> npt.NDArray[np.uint64]:
        """Return the next numbers, uint64 (count,)."""
        blocks = [self._ready]
        have = len(self._ready)
        while have < count:
            blocks.append(self._next_block())
            have += WORDS
        numbers = np.concatenate(blocks)
        self._ready = numbers[count:]
        return numbers[:count]

    def _next_block(self) -> npt.NDArray[np.uint64]:
        old = self._state
        new = np.empty_like(old)
        # Each word needs its neighbour and the word half a state away. In the first half both are
        # old; the second half needs the first half's new words, and the last word the first one.
        new[:MIDDLE] = old[MIDDLE:] ^ _twist(old[:MIDDLE], old[1 : MIDDLE + 1])
        new[MIDDLE:-1] = new[: MIDDLE - 1] ^ _twist(old[MIDDLE:-1], old[MIDDLE + 1 :])
        new[-1:] = new[MIDDLE - 1 : MIDDLE] ^ _twist(old[-1:], new[:1])
        self._state = new
        x: npt.NDArray[np.uint64] = new ^ (
            (new >> np.uint64(29)) & np.uint64(0x5555_5555_5555_5555)
        )
        x = x ^ ((x << np.uint64(17)) & np.uint64(0x71D6_7FFF_EDA6_0000))
        x = x ^ ((x << np.uint64(37)) & np.uint64(0xFFF7_EEE0_0000_0000))
        return x ^ (x >> np.uint64(43))

    def shuffle(self, items: MutableSequence[Any]) -> None:
        """Shuffle in place as CNTK's reader does.

        Each place in turn changes with a place drawn from all of them, which is not quite a fair
        shuffle, but CNTK's.
        """
        size = len(items)
        for place, other in enumerate((self.draw(size) % np.uint64(size)).tolist() if size else []):
            items[place], items[other] = items[other], items[place]


def _twist(upper: npt.NDArray[np.uint64], lower: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    x = (upper & UPPER) | (lower & LOWER)
    return (x >> ONE) ^ ((x & ONE) * MATRIX)
