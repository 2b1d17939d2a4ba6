"""What a trainer computes of a minibatch: a loss per sample, and perhaps metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

# (n_local,) losses, or such losses and a metric of the same shape, or several by name
PerSample = (
    torch.Tensor
    | tuple[torch.Tensor, torch.Tensor]
    | tuple[torch.Tensor, Mapping[str, torch.Tensor]]
)
Criterion = Callable[..., PerSample]

METRIC = "metric"  # the name of the one metric that has none
LOSS, SAMPLES = "loss per sample", "number of samples"


def as_metrics(result: PerSample) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Split a criterion's result.

    Args:
        result: What the criterion returned.

    Returns:
        The losses, (n_local,), and all that is to be summed up, by name, in the same order on all
        ranks: ``LOSS``, ``SAMPLES`` and the metrics.
    """
    losses, metrics = result if isinstance(result, tuple) else (result, {})
    if isinstance(metrics, torch.Tensor):
        metrics = {METRIC: metrics}
    counted = {LOSS: losses, SAMPLES: torch.tensor(losses.numel(), device=losses.device)}
    return losses, {**counted, **dict(sorted(metrics.items()))}
