"""Random numbers of one training, apart from everybody else's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypedDict

import numpy as np
import torch


class StreamState(TypedDict):
    """Where a ``RandomStream`` stands."""

    cpu: torch.Tensor
    gpu: torch.Tensor | None


class RandomStream:
    """What torch's functions, such as dropout, draw from within ``with stream.active()``.

    torch has one global stream; this one takes its place for a while. So what a program draws
    elsewhere doesn't change a training, nor a training what is drawn elsewhere.

    Args:
        seed: Equal on all ranks.
        rank: Each rank's stream is another.
        device: Whose numbers are drawn, besides the CPU's.
    """

    def __init__(self, seed: int, rank: int, device: torch.device) -> None:
        sequence = np.random.SeedSequence(seed, spawn_key=(rank,))
        number = int(sequence.generate_state(1, np.uint64)[0])
        self.device = device
        self._state: StreamState = {
            "cpu": torch.Generator().manual_seed(number).get_state(),
            "gpu": None,
        }
        if device.type == "cuda":
            self._state["gpu"] = torch.Generator(device).manual_seed(number).get_state()

    @contextmanager
    def active(self) -> Iterator[None]:
        """Within the block, torch draws from this stream."""
        outer = self._current()
        self._set(self._state)
        try:
            yield
        finally:
            self._state = self._current()
            self._set(outer)

    def state_dict(self) -> StreamState:
        """Return what ``load_state_dict`` needs to go on with the next number."""
        return self._state

    def load_state_dict(self, state: StreamState) -> None:
        """Go on where ``state`` was taken."""
        self._state = state

    def _current(self) -> StreamState:
        is_gpu = self.device.type == "cuda"
        gpu = torch.cuda.get_rng_state(self.device) if is_gpu else None
        return {"cpu": torch.get_rng_state(), "gpu": gpu}

    def _set(self, state: StreamState) -> None:
        torch.set_rng_state(state["cpu"])
        if state["gpu"] is not None and self.device.type == "cuda":
            torch.cuda.set_rng_state(state["gpu"], self.device)
