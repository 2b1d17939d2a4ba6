"""What the contestants share: the GAN of CNTK's example, MNIST, and the clock."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tutorial_lib.data.datasets import mnist

MINIBATCH_SIZE = 1024  # of all ranks together
DISCRIMINATOR_STEPS = 2
NOISE_SIZE = 100
LEARNING_RATE = 2e-4
WARM_UP_STEPS = 15


def generator() -> nn.Module:
    return nn.Sequential(nn.Linear(100, 128), nn.ReLU(), nn.Linear(128, 784), nn.Tanh())


def discriminator() -> nn.Module:
    return nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 1), nn.Sigmoid())


def dataset() -> TensorDataset:
    """MNIST as floats in -1 to 1: scaled once, not once per sample and epoch."""
    return TensorDataset(mnist().train.features.float().div_(127.5).sub_(1))


def endless(loader: DataLoader) -> Iterator[torch.Tensor]:
    """One epoch after the other, as each framework's loader has it."""
    epoch = 0
    while True:
        if hasattr(loader.sampler, "set_epoch"):
            loader.sampler.set_epoch(epoch)
        for (images,) in loader:
            yield images
        epoch += 1


def train(
    generator: nn.Module,
    discriminator: nn.Module,
    g_optimizer: torch.optim.Optimizer,
    d_optimizer: torch.optim.Optimizer,
    batches: Iterator[torch.Tensor],
    backward: Callable[[torch.Tensor], object] = torch.Tensor.backward,
) -> Callable[[], None]:
    """Return a step as the frameworks' GAN examples have it: two D updates, one G update."""
    criterion = nn.BCELoss()

    def step() -> None:
        for _ in range(DISCRIMINATOR_STEPS):
            real = next(batches)
            n = len(real)
            fake = generator(torch.rand(n, NOISE_SIZE) * 2 - 1).detach()
            d_optimizer.zero_grad()
            d_loss = criterion(discriminator(real), torch.ones(n, 1))
            d_loss = d_loss + criterion(discriminator(fake), torch.zeros(n, 1))
            backward(d_loss)
            d_optimizer.step()
            d_loss.item()
        g_optimizer.zero_grad()
        g_loss = criterion(
            discriminator(generator(torch.rand(n, NOISE_SIZE) * 2 - 1)), torch.ones(n, 1)
        )
        backward(g_loss)
        g_optimizer.step()
        g_loss.item()

    return step


def number_of_steps() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    return parser.parse_known_args()[0].steps


def clock(step: Callable[[], object], rank: int, barrier: Callable[[], object]) -> None:
    """Time a number of steps after a warm-up; rank 0 prints the rate as JSON."""
    for _ in range(WARM_UP_STEPS):
        step()
    steps = number_of_steps()
    barrier()
    start_s = time.perf_counter()
    for _ in range(steps):
        step()
    barrier()
    rate = steps / (time.perf_counter() - start_s)
    if rank == 0:
        print(json.dumps({"steps_per_s": rate}), flush=True)
