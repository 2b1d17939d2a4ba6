"""CNTK's reader of text files: which samples each worker gets, in which order.

Ours (``minibatch_source``) is better; this one exists to repeat CNTK's runs number for number.
"""

from __future__ import annotations

from typing import TypedDict

import numpy as np
import numpy.typing as npt
import torch

from tutorial_lib.data.datasets import Split
from tutorial_lib.data.mersenne import MersenneTwister64
from tutorial_lib.data.minibatch_source import Minibatch
from tutorial_lib.data.partition import partition_bounds

CHUNK_BYTES = 32 * 2**20
# "|labels " + ten one-hot digits with nine spaces + " |features " + separators + newline
BYTES_BESIDE_DIGITS = 8 + 19 + 11 + 1


def chunk_lengths(pixels: torch.Tensor, chunk_bytes: int = CHUNK_BYTES) -> list[int]:
    """Number of lines in each chunk of the CTF text that these images make.

    A chunk is as many consecutive lines as fit into 32 MiB, at least one.

    Args:
        pixels: uint8 (n, features).
        chunk_bytes: Largest size of a chunk.

    Returns:
        Lengths that add up to n; [18008, 18021, 18022, 5949] for MNIST's training images.
    """
    table = np.repeat([1, 2, 3], [10, 90, 156]).astype(np.uint8)  # digits of 0 to 255
    digits = table[pixels.numpy()].sum(axis=1, dtype=np.int64)  # (n,)
    ends = np.cumsum(digits + pixels.shape[1] - 1 + BYTES_BESIDE_DIGITS)
    lengths: list[int] = []
    start, start_byte = 0, 0
    while start < len(ends):
        stop = int(np.searchsorted(ends, start_byte + chunk_bytes, side="right"))
        stop = max(stop, start + 1)
        lengths.append(stop - start)
        start, start_byte = stop, int(ends[stop - 1])
    return lengths


class ReaderState(TypedDict):
    """Where one worker's ``CntkReader`` stands."""

    sweep: int
    offset: int


class CntkReader:
    """Deals samples to workers as CNTK 2.7's text reader does, accidents included.

    Randomised, whole chunks belong to workers: a worker keeps those samples of a sweep whose
    chunk's place in the sweep's order is its rank modulo the number of workers. So workers' sweeps
    have different lengths, and with more workers than chunks some get nothing, ever. In order,
    line i goes to worker i modulo their number, for one sweep.

    Args:
        split: Images and labels in the text file's order.
        seed: Of the order.
        randomize: Whether to shuffle each sweep, without end.

    **Distributed:** not collective; each worker holds its own position, so always ask for the
    same partition of a reader.

    **Source:** CNTK 2.7's ``MinibatchSource(CTFDeserializer(...))``.
    """

    def __init__(self, split: Split, seed: int = 0, randomize: bool = True) -> None:
        self.features = split.features
        self.labels = split.labels
        self.seed = seed
        self.randomize = randomize
        self.chunks = chunk_lengths(self.features)
        self.sweep = 0
        self.offset = 0  # within this worker's part of the sweep
        self._part: tuple[tuple[int, int, int], torch.Tensor] | None = None

    def next_minibatch(
        self, size: int, num_data_partitions: int = 1, partition_index: int = 0
    ) -> Minibatch:
        """Return this worker's part of the next minibatch.

        Args:
            size: Samples in the global minibatch.
            num_data_partitions: Number of workers.
            partition_index: This worker.

        Returns:
            The part; empty for a worker without a chunk, and after the one sweep in order.

        Raises:
            ValueError: A size or rank out of range.
        """
        workers, rank = num_data_partitions, partition_index
        start, stop = partition_bounds(size, workers, rank)
        first_sweep = self.sweep
        indices = self._take(stop - start, workers, rank)
        busy = min(workers, len(self.chunks)) if self.randomize else workers
        return Minibatch(
            features=self.features.index_select(0, indices),
            labels=self.labels.index_select(0, indices),
            indices=indices,
            global_size=partition_bounds(size, workers, busy - 1)[1],
            sweep=first_sweep,
            is_sweep_end=self.sweep > first_sweep,
        )

    def _take(self, count: int, workers: int, rank: int) -> torch.Tensor:
        parts = [torch.empty(0, dtype=torch.int64)]
        has_samples = not self.randomize or rank < len(self.chunks)
        while count > 0 and has_samples and (self.randomize or self.sweep == 0):
            part = self._sweep_part(workers, rank)
            taken = part[self.offset : self.offset + count]
            parts.append(taken)
            count -= len(taken)
            self.offset += len(taken)
            if self.offset == len(part):
                self.sweep, self.offset = self.sweep + 1, 0
        return torch.cat(parts)

    def _sweep_part(self, workers: int, rank: int) -> torch.Tensor:
        key = (self.sweep, workers, rank)
        if self._part is None or self._part[0] != key:
            order = self._worker_order(*key) if self.randomize else np.arange(len(self.labels))
            part = order if self.randomize else order[rank::workers]
            self._part = key, torch.from_numpy(part)
        return self._part[1]

    def _worker_order(self, sweep: int, workers: int, rank: int) -> npt.NDArray[np.int64]:
        starts = np.concatenate([[0], np.cumsum(self.chunks)])
        chunks = list(range(len(self.chunks)))
        MersenneTwister64(sweep + self.seed).shuffle(chunks)
        lines = [line for chunk in chunks for line in range(starts[chunk], starts[chunk + 1])]
        MersenneTwister64(sweep + self.seed).shuffle(lines)
        order = np.array(lines, dtype=np.int64)
        place = np.empty(len(chunks), dtype=np.int64)
        place[chunks] = np.arange(len(chunks))
        chunk_of_line = np.searchsorted(starts, order, side="right") - 1
        mine: npt.NDArray[np.int64] = order[place[chunk_of_line] % workers == rank]
        return mine

    def state_dict(self) -> ReaderState:
        """Where this worker stands."""
        return {"sweep": self.sweep, "offset": self.offset}

    def load_state_dict(self, state: ReaderState) -> None:
        """Continue where ``state`` was taken, by the same worker of as many."""
        self.sweep, self.offset = state["sweep"], state["offset"]
