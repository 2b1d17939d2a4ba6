"""The loop in which a GAN trains, and what it leaves."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from torch import nn

from tutorial_lib.training.gan import DISCRIMINATOR_STEPS, BasicGan, LossRecord


@dataclass
class GanResult:
    """What training gives back.

    Attributes:
        generator: The trained plain module; equal on all ranks.
        discriminator: Likewise.
        losses: One record per update, in order; equal on all ranks.
        seconds: Wall-clock time of the training loop.
    """

    generator: nn.Module
    discriminator: nn.Module
    losses: list[LossRecord] = field(default_factory=list)
    seconds: float = 0.0

    def curve(self, network: Literal["D", "G"]) -> list[float]:
        """Loss averages of one network, one per update."""
        return [record.loss_average for record in self.losses if record.network == network]


OnStep = Callable[[int, GanResult], None]


def run_steps(
    gan: BasicGan, on_step: OnStep | None = None, result: GanResult | None = None
) -> GanResult:
    """Train a GAN up to the number of steps that its configuration names.

    Args:
        gan: What to train.
        on_step: Called after each step with its number, from 1, and the result so far.
        result: What ``restore_gan`` gave back; None to begin.

    Returns:
        Networks, losses and time of all steps, those before a checkpoint included.

    **Distributed:** collective in a session of several ranks.
    """
    result = result or GanResult(gan.generator, gan.discriminator)
    done = len(result.losses) // (DISCRIMINATOR_STEPS + gan.generator_updates)
    start_s = time.perf_counter() - result.seconds
    for number in range(done + 1, gan.config.num_minibatches + 1):
        result.losses += gan.step()
        result.seconds = time.perf_counter() - start_s
        if on_step is not None:
            on_step(number, result)
    return result
