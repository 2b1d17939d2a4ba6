"""What can be added to a training: stops, checkpoints, averages; for logs see ``logs``."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from tutorial_lib.training.fit_state import FILE_NAME

if TYPE_CHECKING:
    from tutorial_lib.training.fit import Trainer

CHECKPOINT_INTERVAL_S = 600.0  # TensorLayer's


class Callback:
    """Base of callbacks: does nothing. Override what you need.

    **Distributed:** every method is called on all ranks at the same step, with equal measures.
    What only one rank may do, such as writing a file, asks ``trainer.is_master`` first. What one
    rank decides, by its clock for instance, goes through ``trainer.request_stop()``.
    """

    def on_start(self, trainer: Trainer) -> None:
        """Before the first step, after a checkpoint was restored."""

    def on_step(self, trainer: Trainer) -> None:
        """After each step; ``trainer.logs`` has its measures."""

    def on_validation(self, trainer: Trainer, metrics: Mapping[str, float]) -> None:
        """After each validation."""

    def on_end(self, trainer: Trainer) -> None:
        """After the last step."""

    def state_dict(self) -> dict[str, Any]:
        """What goes into a checkpoint: tensors and plain values, equal on all ranks."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where ``state_dict`` was taken."""


class StopAfterSeconds(Callback):
    """Ends the training some time after its start: by rank 0's clock, on all ranks at one step.

    Args:
        limit_s: Seconds; the step under way and one more are still made.

    **Source:** TensorLayer's ``StopAtTimeHook``, in which each process asks its own clock, so
    that one stops while the others wait for it.
    """

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._start_s = math.inf

    def on_start(self, trainer: Trainer) -> None:
        """Start the clock."""
        self._start_s = time.monotonic()

    def on_step(self, trainer: Trainer) -> None:
        """Ask for the end when the time is over."""
        if trainer.is_master and time.monotonic() - self._start_s >= self.limit_s:
            trainer.request_stop()


class EarlyStopping(Callback):
    """Ends the training when a validation metric has stopped improving.

    Args:
        metric: Its name.
        patience: Validations without improvement that are borne.
        mode: Whether less ("min") or more ("max") is better.

    Raises:
        ValueError: Another mode.
    """

    def __init__(
        self, metric: str = "loss", patience: int = 3, mode: Literal["min", "max"] = "min"
    ) -> None:
        if mode not in ("min", "max"):
            raise ValueError(f"mode is 'min' or 'max', got {mode!r}")
        self.metric = metric
        self.patience = patience
        self.sign = 1 if mode == "min" else -1
        self.best = math.inf
        self.num_worse = 0

    def on_validation(self, trainer: Trainer, metrics: Mapping[str, float]) -> None:
        """Count, and stop after too many. The metrics are equal on all ranks, so all stop."""
        value = self.sign * metrics[self.metric]
        self.num_worse = 0 if value < self.best else self.num_worse + 1
        self.best = min(self.best, value)
        if self.num_worse > self.patience:
            trainer.stop()

    def state_dict(self) -> dict[str, Any]:
        """The best so far and how long ago."""
        return {"best": self.best, "num_worse": self.num_worse}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on counting."""
        self.best, self.num_worse = state["best"], state["num_worse"]


class Checkpoint(Callback):
    """Saves the whole state of a training, every so often and at its end.

    Args:
        folder: Where ``checkpoint.pt`` is written.
        every_s: Seconds between two, by rank 0's clock.
        every_steps: Steps between two, instead of seconds.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        every_s: float = CHECKPOINT_INTERVAL_S,
        every_steps: int | None = None,
    ) -> None:
        self.path = Path(folder) / FILE_NAME
        self.every_s = every_s
        self.every_steps = every_steps
        self._last_s = time.monotonic()

    def on_step(self, trainer: Trainer) -> None:
        """Ask for a checkpoint when the time is over."""
        is_timed = self.every_steps is None
        if is_timed and trainer.is_master and time.monotonic() - self._last_s >= self.every_s:
            self._last_s = time.monotonic()
            trainer.request_checkpoint()

    def is_due(self, trainer: Trainer) -> bool:
        """Whether to save after this step, all ranks alike; the trainer does it."""
        every = self.every_steps
        return trainer.should_stop() or (every is not None and trainer.global_step % every == 0)


class WeightAverage(Callback):
    """Keeps an exponential moving average of the weights, which often tests better than they do.

    Args:
        decay: Share of the average that each step keeps, 0 to 1.

    **Source:** Polyak and Juditsky, 1992; TensorFlow's ``ExponentialMovingAverage``.
    """

    def __init__(self, decay: float = 0.999) -> None:
        if not 0 <= decay <= 1:
            raise ValueError(f"decay is a share, 0 to 1, got {decay}")
        self.decay = decay
        self.weights: dict[str, torch.Tensor] = {}

    def on_start(self, trainer: Trainer) -> None:
        """Begin with the weights as they are, unless a checkpoint has an average."""
        if not self.weights:
            self.weights = {n: p.detach().clone() for n, p in _parameters(trainer)}

    @torch.no_grad()
    def on_step(self, trainer: Trainer) -> None:
        """Move the average a little towards the weights."""
        for name, parameter in _parameters(trainer):
            self.weights[name].lerp_(parameter, 1 - self.decay)

    @contextmanager
    def applied(self, trainer: Trainer) -> Iterator[None]:
        """Within the block the network has the averaged weights; then its own again."""
        own = {name: parameter.detach().clone() for name, parameter in _parameters(trainer)}
        self._load(trainer, self.weights)
        try:
            yield
        finally:
            self._load(trainer, own)

    @torch.no_grad()
    def _load(self, trainer: Trainer, weights: Mapping[str, torch.Tensor]) -> None:
        for name, parameter in _parameters(trainer):
            parameter.copy_(weights[name])

    def state_dict(self) -> dict[str, Any]:
        """The average."""
        return {"weights": self.weights}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with that average."""
        self.weights = {name: value.clone() for name, value in state["weights"].items()}


def _parameters(trainer: Trainer) -> Iterator[tuple[str, torch.nn.Parameter]]:
    return trainer.training_network.named_parameters()
