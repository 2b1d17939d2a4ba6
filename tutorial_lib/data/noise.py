"""The generator's input: one stream of noise, shared by all ranks."""

from __future__ import annotations

from typing import TypedDict

import numpy as np
import torch

from tutorial_lib.data.partition import partition_bounds

# Philox makes four 64-bit words per counter value, and NumPy makes two float32 of each word.
ELEMENTS_PER_COUNTER = 8


class CntkNoise:
    """The noise of CNTK's example: every worker seeds NumPy alike and so draws the same rows.

    Only for repeating a CNTK run; ``NoiseSource`` has the same arguments and not this flaw.

    Args:
        dim: length of a noise vector.
        seed: of NumPy's legacy generator.

    **Source:** ``noise_sample`` of CNTK's Basic_GAN_Distributed.py.
    """

    def __init__(self, dim: int = 100, seed: int = 123) -> None:
        self.dim = dim
        self._random = np.random.RandomState(seed)

    def next(
        self, size: int, num_data_partitions: int = 1, partition_index: int = 0
    ) -> torch.Tensor:
        """Return ``size // num_data_partitions`` rows, float32, the same on every rank."""
        rows = self._random.uniform(-1, 1, [size // num_data_partitions, self.dim])
        return torch.from_numpy(rows.astype(np.float32))


class NoiseState(TypedDict):
    """Where a ``NoiseSource`` stands."""

    seed: int
    dim: int
    position: int


class NoiseSource:
    """Uniform noise in [-1, 1), the same set of rows however many ranks share it.

    There is one global stream of rows. Each call takes the next ``size`` rows of it, and each
    rank draws only its own slice of those, by jumping there: the counter-based Philox generator
    needs no walk through what other ranks draw. So ranks never draw the same row (CNTK's example
    does: it seeds every rank alike), and 1, 2 or 4 ranks train on the same noise.

    Args:
        dim: length of a noise vector.
        seed: key of the stream, 0 or more. Equal on all ranks.

    **Distributed:** not collective. All ranks must make the same calls, each with its own
    ``partition_index``; then all hold the same state.

    **Source:** ``noise_sample`` of CNTK's Basic_GAN_Distributed.py, without its identical noise.
    """

    def __init__(self, dim: int = 100, seed: int = 123) -> None:
        if dim < 1:
            raise ValueError(f"dim is the length of a noise vector, 1 or more, got {dim}")
        if seed < 0:
            raise ValueError(f"seed is 0 or more, got {seed}")
        self.dim = dim
        self.seed = seed
        self.position = 0

    def next(
        self, size: int, num_data_partitions: int = 1, partition_index: int = 0
    ) -> torch.Tensor:
        """Return this rank's rows of the next ``size`` rows.

        Args:
            size: rows in the global minibatch.
            num_data_partitions: number of ranks that share it.
            partition_index: this rank.

        Returns:
            float32, (n_local, dim), uniform in [-1, 1).

        Raises:
            ValueError: a rank or size out of range; see ``partition_bounds``.
        """
        start, stop = partition_bounds(size, num_data_partitions, partition_index)
        rows = self._rows(self.position + start, stop - start)
        self.position += size
        return rows

    def _rows(self, first: int, count: int) -> torch.Tensor:
        counter, skipped = divmod(first * self.dim, ELEMENTS_PER_COUNTER)
        philox = np.random.Philox(key=self.seed)
        philox.advance(counter)
        # The numbers of Generator.random(dtype=float32), in two thirds of its time: the upper 24
        # bits of each half of a word, the lower half first.
        size = count * self.dim
        words = philox.random_raw((skipped + size + 1) // 2).astype("<u8", copy=False)
        bits = words.view("<u4")[skipped : skipped + size] >> 8
        scaled = bits.astype(np.float32) * np.float32(2**-23) - np.float32(1)
        return torch.from_numpy(scaled.reshape(count, self.dim))

    def state_dict(self) -> NoiseState:
        """Return what ``load_state_dict`` needs to continue the stream at the next row."""
        return {"seed": self.seed, "dim": self.dim, "position": self.position}

    def load_state_dict(self, state: NoiseState) -> None:
        """Continue the stream where ``state`` was taken.

        Args:
            state: what ``state_dict`` returned, on any rank of a run with any number of ranks.

        Raises:
            ValueError: the state is of noise vectors of another length; make the source with
                that ``dim``.
        """
        if state["dim"] != self.dim:
            raise ValueError(f"the state is of dim {state['dim']}, this source has {self.dim}")
        self.seed = state["seed"]
        self.position = state["position"]
