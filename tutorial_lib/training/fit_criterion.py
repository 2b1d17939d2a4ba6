"""Between a user's training function and the step: what counts how much, and what ranks ask."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import nn

from tutorial_lib.data.partition import partition_bounds
from tutorial_lib.data.pipeline import Prepared
from tutorial_lib.training.evaluation import Measured, evaluation_mode, mixed_precision, per_sample

TrainingFunc = Callable[
    [nn.Module, torch.Tensor, torch.Tensor], torch.Tensor | tuple[torch.Tensor, Measured]
]
Piece = tuple[torch.Tensor, torch.Tensor, int]  # x, y, and how many of the samples count

STOP, SAVE = "request: stop", "request: save"


class FitCriterion:
    """A training function as the step's criterion: losses and measures per sample.

    A mean over a rank's minibatch becomes that value for each of its samples, so that sums over
    all ranks, divided by all samples, are exact means. What a rank asks of all, to stop or to
    save, travels with the same sums: all hear of it after the same step, at no cost.

    Args:
        func: See ``training.fit.Trainer``.
        autocast: Type for matrix products; None for float32.
    """

    def __init__(self, func: TrainingFunc, autocast: torch.dtype | None = None) -> None:
        self.func = func
        self.autocast = autocast
        self.requests: set[str] = set()

    def __call__(
        self, network: nn.Module, x: torch.Tensor, y: torch.Tensor, count: int
    ) -> tuple[torch.Tensor, Measured]:
        """Return losses (count,), and measures by name with the requests among them."""
        # What doesn't count must not leave a trace in running statistics either.
        mode = nullcontext() if count else evaluation_mode(network)
        with mode, mixed_precision(x.device, self.autocast):
            result = self.func(network, x, y)
        loss, logs = result if isinstance(result, tuple) else (result, {})
        measures = {name: per_sample(name, value, len(x), count) for name, value in logs.items()}
        for name in (STOP, SAVE):
            measures[name] = torch.tensor(float(name in self.requests), device=loss.device)
        self.requests.clear()
        return per_sample("loss", loss, len(x), count), measures


def cut(prepared: Prepared, pieces: int, device: torch.device) -> list[Piece]:
    """Cut a rank's part of a minibatch into what one backward takes at a time.

    Args:
        prepared: The part.
        pieces: At most so many, none empty.
        device: Where they go.

    Returns:
        One piece or more; a rank without samples has one that doesn't count.
    """
    x, y = prepared.x.to(device), prepared.y.to(device)
    if prepared.count == 0:
        return [(x, y, 0)]
    bounds = [partition_bounds(prepared.count, pieces, number) for number in range(pieces)]
    return [(x[start:stop], y[start:stop], stop - start) for start, stop in bounds if stop > start]
