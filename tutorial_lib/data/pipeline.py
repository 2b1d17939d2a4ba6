"""Minibatches of one rank, augmented and prepared ahead of the training step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypedDict

import torch

from tutorial_lib.data.augment import RANDOM_COLUMNS
from tutorial_lib.data.datasets import Split
from tutorial_lib.data.minibatch_source import MinibatchSource, SourceState
from tutorial_lib.data.noise import NoiseSource
from tutorial_lib.data.prefetch import Prefetcher

# (features, random) -> features; see Pipeline
BatchMap = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Prepared:
    """One rank's part of one global minibatch, ready for the step.

    Attributes:
        x: (max(count, 1), ...), after the map. A rank whose part is empty gets a sample that is
            another's, so that it can take the step with the others; it counts 0 times.
        y: (max(count, 1), ...).
        count: samples of this rank's part.
        global_size: samples of all ranks together.
        sweep: number of the sweep through the data.
        is_sweep_end: whether it holds the sweep's last sample.
        position: samples of the stream up to and with this minibatch, of all ranks.
    """

    x: torch.Tensor
    y: torch.Tensor
    count: int
    global_size: int
    sweep: int
    is_sweep_end: bool
    position: int


class PipelineState(TypedDict):
    """Where a ``Pipeline`` stands: what has been handed out, not what is prepared."""

    source: SourceState


class Pipeline:
    """Deals one rank its part of each minibatch; sweeps don't run into each other.

    A sweep's last minibatch is what is left of it, shared out like the others: disjoint parts,
    nothing duplicated, nothing padded, and as many steps on every rank. What is dealt depends on
    the seed and the place in the stream alone. So nothing prepared ahead is ever in the way of
    stopping and going on, and 1, 2 or 4 ranks see the same samples, augmented alike.

    Args:
        data: a ``Split`` (its ``images`` are taken), or ``(x, y)`` with equally many rows.
        size: samples in the global minibatch.
        partition: number of ranks, and this rank.
        seed: of order and augmentation, 0 or more; equal on all ranks.
        batch_map: ``batch_map(x, random)`` changes this rank's samples, and only them;
            ``random`` is float32 (n_local, 8), uniform in [-1, 1), a row for each sample. A map
            that draws nothing else gives the same for any number of ranks.
        prefetch_size: minibatches to prepare ahead in a thread; 0 prepares each when asked.
        randomize: whether to shuffle each sweep.

    Raises:
        ValueError: no samples, x and y of different lengths, or a number out of range.

    **Distributed:** not collective. All ranks make the same calls.

    **Source:** TensorLayer's ``training_dataset`` with shard, batch, map and prefetch.
    """

    def __init__(
        self,
        data: Split | tuple[torch.Tensor, torch.Tensor],
        size: int,
        partition: tuple[int, int] = (1, 0),
        seed: int = 0,
        batch_map: BatchMap | None = None,
        prefetch_size: int = 0,
        randomize: bool = True,
    ) -> None:
        if size < 1 or prefetch_size < 0:
            raise ValueError(
                f"size is 1 or more and prefetch_size 0 or more: {size, prefetch_size}"
            )
        x, y = (data.images, data.labels) if isinstance(data, Split) else data
        self.source = MinibatchSource((x, y), seed, randomize)
        self.size = size
        self.partition = partition
        self.batch_map = batch_map
        self._random = NoiseSource(RANDOM_COLUMNS, seed)
        state = self.source.state_dict()
        self._prefetcher: Prefetcher[Prepared, SourceState] = Prefetcher(prefetch_size, state)

    @property
    def steps_per_sweep(self) -> int:
        """Minibatches in one sweep through the data, the same on every rank."""
        return -(-len(self.source) // self.size)

    def next(self) -> Prepared:
        """Return the next minibatch; with a thread, it has mostly been prepared already.

        Raises:
            Exception: what ``batch_map`` raised, here and not in the thread. The next call tries
                the same minibatch again.
        """
        return self._prefetcher.next(self._prepare, self.source.load_state_dict)

    def close(self) -> None:
        """End the thread. The pipeline stands where it stood and can be used again."""
        self._prefetcher.rewind(self.source.load_state_dict)

    def state_dict(self) -> PipelineState:
        """Return where the stream stands after what was handed out."""
        return {"source": self._prefetcher.state}

    def load_state_dict(self, state: PipelineState) -> None:
        """Go on where ``state`` was taken, on any number of ranks.

        Raises:
            ValueError: the state is of another number of samples.
        """
        self.close()
        self.source.load_state_dict(state["source"])
        self._prefetcher.state = self.source.state_dict()
        self._random = NoiseSource(RANDOM_COLUMNS, self.source.seed)

    def _prepare(self) -> tuple[Prepared, SourceState]:
        start = self.source.position
        size = min(self.size, len(self.source) - start % len(self.source))
        self._random.position = start
        part = self.source.next_minibatch(size, *self.partition)
        random = self._random.next(size, *self.partition)
        x, y, count = part.features, part.labels, len(part.labels)
        if count == 0:
            x, y, random = (
                self.source.features[:1],
                self.source.labels[:1],
                torch.zeros(1, RANDOM_COLUMNS),
            )
        if self.batch_map is not None:
            x = self.batch_map(x, random)
        state = self.source.state_dict()
        position = state["position"]
        return Prepared(x, y, count, size, part.sweep, part.is_sweep_end, position), state
