"""Means over a whole data set, each rank its part: exact for any number of ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
import torch.distributed as dist
from torch import nn

from tutorial_lib.data.partition import partition_bounds
from tutorial_lib.distributed.session import Session

Measured = Mapping[str, torch.Tensor]
# (network, x, y) -> {name: a mean over the samples, or a value per sample}
EvaluationFunc = Callable[[nn.Module, torch.Tensor, torch.Tensor], Measured]


def evaluate(
    network: nn.Module,
    func: EvaluationFunc,
    data: tuple[torch.Tensor, torch.Tensor],
    ranks: Session,
    batch_size: int,
    batch_map: Callable[[torch.Tensor], torch.Tensor] | None = None,
    autocast: torch.dtype | None = None,
) -> dict[str, float]:
    """Measure a network on all samples once, each rank on its own part of them.

    Sums and counts are added up over minibatches and ranks, so every sample has the same weight
    whatever the sizes of minibatches and parts. Nothing that training depends on is changed: not
    the weights, nor buffers, modes or random state.

    Args:
        network: The plain network.
        func: ``func(network, x, y)`` returns named measures of a minibatch, each a scalar mean
            over its samples or one value per sample.
        data: ``(x, y)``, equally many rows, at least one; equal on all ranks.
        ranks: The session.
        batch_size: Samples of a rank at a time.
        batch_map: Prepares a minibatch, such as ``central_crop``.
        autocast: Type for matrix products; None for float32.

    Returns:
        The means by name, equal on all ranks.

    **Distributed:** collective.
    """
    x, y = data
    start, stop = partition_bounds(len(x), ranks.world_size, ranks.rank)
    sums: dict[str, float] = {}
    gpus = [ranks.device] if ranks.device.type == "cuda" else []
    with (
        torch.no_grad(),
        torch.random.fork_rng(devices=gpus),
        evaluation_mode(network),
        averaged_buffers(network, ranks),
    ):
        # A rank without samples measures one of another's, counted 0 times: it learns the names.
        for first in range(start, max(stop, start + 1), batch_size):
            count = max(0, min(batch_size, stop - first))
            rows = slice(first, first + count) if count else slice(0, 1)
            part = batch_map(x[rows]) if batch_map is not None else x[rows]
            with mixed_precision(ranks.device, autocast):
                measured = func(network, part.to(ranks.device), y[rows].to(ranks.device))
            for name, values in measured.items():
                total = float(per_sample(name, values, len(part), count).double().sum())
                sums[name] = sums.get(name, 0.0) + total
    names = sorted(sums)
    totals = torch.tensor([sums[n] for n in names], dtype=torch.float64, device=ranks.device)
    return dict(zip(names, (ranks.all_reduce_sum(totals) / len(x)).tolist(), strict=True))


def per_sample(name: str, values: torch.Tensor, num_samples: int, count: int) -> torch.Tensor:
    """Return a measure of a minibatch as one value per sample: (count,), differentiable.

    Args:
        name: For the error.
        values: A mean over the samples, a scalar, or one value per sample, (num_samples,).
        num_samples: Samples in the minibatch.
        count: How many of these count: all, or 0.

    Raises:
        ValueError: Another shape; return one of the two.
    """
    values = torch.as_tensor(values)
    if values.dim() == 0:
        return values.expand(count)
    if values.shape != (num_samples,):
        raise ValueError(
            f"{name!r} is a mean over the samples, a scalar, or a value for each of the "
            f"{num_samples}, but has shape {tuple(values.shape)}"
        )
    return values[:count]


def mixed_precision(
    device: torch.device, dtype: torch.dtype | None
) -> AbstractContextManager[object]:
    """Within the block, products and convolutions are in ``dtype``; None: in operands' own."""
    if dtype is None and not torch.is_autocast_enabled(device.type):
        return nullcontext()
    return torch.autocast(device.type, dtype, enabled=dtype is not None)


@contextmanager
def evaluation_mode(network: nn.Module) -> Iterator[None]:
    """Within the block nothing is dropped or counted; then each layer has its own mode again."""
    modes = {module: module.training for module in network.modules()}
    network.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


@contextmanager
def averaged_buffers(network: nn.Module, ranks: Session) -> Iterator[None]:
    """Within the block, running statistics are the mean over the ranks; then each has its own.

    Each rank's batch normalisation counts what it saw itself. All ranks must judge, and save, one
    and the same network.

    **Distributed:** collective.
    """
    buffers = [b for b in network.buffers() if b.is_floating_point()]
    if ranks.world_size == 1 or not buffers:
        yield
        return
    own = [buffer.clone() for buffer in buffers]
    flat = torch.cat([buffer.flatten().double() for buffer in own])
    dist.all_reduce(flat)
    means = (flat / ranks.world_size).split([buffer.numel() for buffer in own])
    for buffer, mean in zip(buffers, means, strict=True):
        buffer.copy_(mean.view(buffer.shape))
    try:
        yield
    finally:
        for buffer, value in zip(buffers, own, strict=True):
            buffer.copy_(value)
