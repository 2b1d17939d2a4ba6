"""A source's minibatches as what a criterion takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch

Streams = Mapping[str, str]
"""For each of a criterion's arguments, by name, which of a minibatch's tensors it gets."""


class Source(Protocol):
    """What a session reads, such as ``data.minibatch_source.MinibatchSource``."""

    def next_minibatch(
        self, size: int, num_data_partitions: int = 1, partition_index: int = 0
    ) -> Any:
        """Return this rank's part of the next minibatch: streams, global_size, is_sweep_end."""

    def state_dict(self) -> Any:
        """Return where the source stands, in plain values."""

    def load_state_dict(self, state: Any) -> None:
        """Go on from ``state_dict``'s."""


@dataclass
class Feed:
    """A source's minibatches as the criterion's arguments.

    Args:
        source: Of the minibatches.
        size: Samples in a minibatch of all ranks.
        streams: A stream for each of the criterion's arguments.
        device: Where the model is.
    """

    source: Source
    size: int
    streams: Streams
    device: torch.device

    def next(
        self, samples_left: int, partition: tuple[int, int]
    ) -> tuple[dict[str, torch.Tensor], Any] | None:
        """Return a minibatch's arguments and itself; None when no rank has samples any more."""
        if samples_left <= 0:
            return None
        minibatch = self.source.next_minibatch(min(self.size, samples_left), *partition)
        if minibatch.global_size == 0:
            return None
        arguments = {}
        for name, stream in self.streams.items():
            if not hasattr(minibatch, stream):
                raise ValueError(
                    f"model_inputs_to_streams wants the stream {stream!r} for {name!r}, but the "
                    f"source's minibatches have {sorted(vars(minibatch))}"
                )
            arguments[name] = getattr(minibatch, stream).to(self.device)
        return arguments, minibatch


def refuse_endless(source: Source, max_samples: int | None) -> None:
    """Refuse to measure for ever.

    Raises:
        ValueError: Neither the source nor the number of samples has an end: give one of them.
    """
    if max_samples is None and getattr(source, "max_sweeps", 1) is None:
        raise ValueError(
            "a source that never ends can't be measured: make it with max_sweeps=1, or give "
            "the cross-validation max_samples"
        )
