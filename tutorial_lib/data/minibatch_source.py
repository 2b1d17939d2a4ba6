"""Minibatches out of tensors, for any number of ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
import torch

from tutorial_lib.data.datasets import Split
from tutorial_lib.data.partition import partition_bounds


@dataclass(frozen=True)
class Minibatch:
    """One rank's part of one global minibatch.

    Attributes:
        features: (n_local, ...), for MNIST uint8 (n_local, 784).
        labels: (n_local,).
        indices: int64 (n_local,), the samples' places in the source's tensors.
        global_size: samples of all ranks together; 0 once ``max_sweeps`` are over. Averages are
            sums over all ranks divided by this.
        sweep: number of the sweep that the first sample of the global minibatch belongs to.
        is_sweep_end: the global minibatch holds the last sample of a sweep.

    **Distributed:** ``global_size``, ``sweep`` and ``is_sweep_end`` are equal on all ranks, so
    they are safe to decide on; the tensors' lengths are not.
    """

    features: torch.Tensor
    labels: torch.Tensor
    indices: torch.Tensor
    global_size: int
    sweep: int
    is_sweep_end: bool


class SourceState(TypedDict):
    """Where a ``MinibatchSource`` stands."""

    seed: int
    randomize: bool
    num_samples: int
    position: int


class MinibatchSource:
    """An endless stream of samples, cut into global minibatches and shared out to ranks.

    The stream is sweep after sweep of all samples, each sweep in an order of its own that depends
    on nothing but the seed and the sweep's number. The next global minibatch is the next ``size``
    samples of the stream, across the end of a sweep too; a rank gets a contiguous part of it. So
    parts are disjoint and nothing is duplicated or dropped; every rank takes the same number of
    steps for any world size; and the samples of a step are the same set whatever that size.

    Args:
        data: a ``Split``, or ``(features, labels)`` with equally many rows.
        seed: names the orders of all sweeps, 0 or more. Equal on all ranks.
        randomize: shuffle each sweep; False keeps the samples' own order.
        max_sweeps: the stream ends after so many sweeps, its last minibatch being what is left;
            None never ends.

    Raises:
        ValueError: no samples, or features and labels of different lengths.

    **Distributed:** not collective. All ranks must make the same calls, each with its own
    ``partition_index``; then all hold the same state.

    **Source:** CNTK's ``MinibatchSource`` over a ``CTFDeserializer``. Unlike it, whole chunks of
    text are not tied to ranks, so that there is no largest or forbidden number of ranks.
    """

    def __init__(
        self,
        data: Split | tuple[torch.Tensor, torch.Tensor],
        seed: int = 0,
        randomize: bool = True,
        max_sweeps: int | None = None,
    ) -> None:
        self.features, self.labels = (
            (data.features, data.labels) if isinstance(data, Split) else data
        )
        if len(self.features) != len(self.labels):
            raise ValueError(
                f"features have {len(self.features)} rows but labels {len(self.labels)}; "
                "each sample needs one of both"
            )
        if len(self.features) == 0:
            raise ValueError("a minibatch source needs at least one sample")
        if seed < 0:
            raise ValueError(f"seed is 0 or more, got {seed}")
        if max_sweeps is not None and max_sweeps < 1:
            raise ValueError(f"max_sweeps is 1 or more, or None for no end, got {max_sweeps}")
        self.seed = seed
        self.randomize = randomize
        self.max_sweeps = max_sweeps
        self.position = 0
        self._order: tuple[int, torch.Tensor] | None = None  # of the sweep drawn from last

    def __len__(self) -> int:
        """Return the number of samples in a sweep."""
        return len(self.features)

    def next_minibatch(
        self, size: int, num_data_partitions: int = 1, partition_index: int = 0
    ) -> Minibatch:
        """Return this rank's part of the next global minibatch.

        Args:
            size: samples in the global minibatch, 1 or more; may exceed a sweep.
            num_data_partitions: number of ranks that share it.
            partition_index: this rank.

        Returns:
            The part. With fewer samples than ranks some parts are empty, and their ranks take the
            step all the same. After ``max_sweeps`` all are, and ``global_size`` is 0.

        Raises:
            ValueError: a rank or size out of range; see ``partition_bounds``.
        """
        if size < 1:
            raise ValueError(f"a minibatch has 1 sample or more, got size={size}")
        num_samples = len(self)
        if self.max_sweeps is not None:
            size = max(0, min(size, self.max_sweeps * num_samples - self.position))
        start, stop = partition_bounds(size, num_data_partitions, partition_index)
        indices = self._indices(self.position + start, self.position + stop)
        sweep = self.position // num_samples
        self.position += size
        return Minibatch(
            features=self.features.index_select(0, indices.to(self.features.device)),
            labels=self.labels.index_select(0, indices.to(self.labels.device)),
            indices=indices,
            global_size=size,
            sweep=sweep,
            is_sweep_end=self.position // num_samples > sweep,
        )

    def minibatches(
        self, size: int, num_data_partitions: int = 1, partition_index: int = 0
    ) -> Iterator[Minibatch]:
        """Yield minibatches up to the end of ``max_sweeps``, or for ever.

        Args and errors are those of ``next_minibatch``. All ranks get equally many.
        """
        while (
            minibatch := self.next_minibatch(size, num_data_partitions, partition_index)
        ).global_size:
            yield minibatch

    def _indices(self, start: int, stop: int) -> torch.Tensor:
        """Return the samples at positions start to stop of the stream."""
        parts = [torch.empty(0, dtype=torch.int64)]
        while start < stop:
            sweep, first = divmod(start, len(self))
            part = self._sweep_order(sweep)[first : first + stop - start]
            parts.append(part)
            start += len(part)
        return torch.cat(parts)

    def _sweep_order(self, sweep: int) -> torch.Tensor:
        if self._order is None or self._order[0] != sweep:
            self._order = sweep, self._new_order(sweep)
        return self._order[1]

    def _new_order(self, sweep: int) -> torch.Tensor:
        if not self.randomize:
            return torch.arange(len(self))
        seed = np.random.SeedSequence(self.seed, spawn_key=(sweep,))
        random = np.random.Generator(np.random.PCG64(seed))
        return torch.from_numpy(random.permutation(len(self)))

    def state_dict(self) -> SourceState:
        """Return what ``load_state_dict`` needs to continue the stream at the next sample."""
        return {
            "seed": self.seed,
            "randomize": self.randomize,
            "num_samples": len(self),
            "position": self.position,
        }

    def load_state_dict(self, state: SourceState) -> None:
        """Continue the stream where ``state`` was taken, with its seed and kind of order.

        Args:
            state: what ``state_dict`` returned, on any rank of a run with any number of ranks.

        Raises:
            ValueError: the state is of a source with another number of samples; open the data
                that it was taken with.
        """
        if state["num_samples"] != len(self):
            raise ValueError(
                f"the state is of {state['num_samples']} samples, this source has {len(self)}"
            )
        self.seed = state["seed"]
        self.randomize = state["randomize"]
        self.position = state["position"]
        self._order = None
