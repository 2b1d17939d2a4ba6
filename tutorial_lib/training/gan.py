"""The GAN of CNTK's example in training: its two players, their data, and the step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import nn

from tutorial_lib.data.cntk_reader import CntkReader
from tutorial_lib.data.datasets import mnist
from tutorial_lib.data.minibatch_source import Minibatch, MinibatchSource
from tutorial_lib.data.noise import CntkNoise, NoiseSource
from tutorial_lib.distributed import session
from tutorial_lib.learners.block_momentum import block_momentum_distributed_learner
from tutorial_lib.learners.data_parallel import data_parallel_distributed_learner
from tutorial_lib.learners.distributed_learner import DistributedLearner
from tutorial_lib.learners.fsadagrad import fsadagrad
from tutorial_lib.learners.learner import Learner
from tutorial_lib.learners.schedules import (
    learning_parameter_schedule_per_sample,
    momentum_schedule_per_sample,
)
from tutorial_lib.models.gan import IMAGE_SIZE, NOISE_SIZE, Discriminator, Generator, scale_pixels
from tutorial_lib.models.init import cntk_xavier_uniform_
from tutorial_lib.models.losses import discriminator_loss, generator_loss
from tutorial_lib.models.matrix_product import matrix_product
from tutorial_lib.training.evaluation import mixed_precision
from tutorial_lib.training.progress import ProgressPrinter
from tutorial_lib.training.trainer import Trainer

NUM_MINIBATCHES = {"fast": 300, "full": 40_000}
MINIBATCH_SIZE = 1024  # of all ranks together
DISCRIMINATOR_STEPS = 2  # discriminator updates for each update of the generator
CNTK_WORKERS = 4  # at most, in a replay: as many as chunks of its text
LEARNING_RATE = 0.00005  # per sample
MOMENTUM = 0.9985724484938566  # per sample: exp(-1/700)


class LossRecord(NamedTuple):
    """One update, in the order and form of CNTK's recorded runs."""

    network: Literal["D", "G"]
    loss_average: float
    minibatch_samples: int
    samples_seen: int
    is_updated: bool


@dataclass(frozen=True)
class GanConfig:
    """What to train.

    Attributes:
        num_minibatches: Generator updates; the discriminator gets twice as many.
        minibatch_size: Samples of all ranks together.
        seed: Of noise and sample order; the weights come from ``seed`` too. Equal on all ranks.
        data_dir: Folder with MNIST as IDX or CTF files; None takes the bundled files.
        dtype: Type of weights and images.
        progress_frequency: Generator updates between two lines; None for 50 lines in all.
        is_cntk_replay: Whether to repeat CNTK 2.7's run number for number: its initial weights,
            its reader's order and its noise, which is the same on every rank.
        matrix_product: "auto", "mkl" or "onednn" for the whole process; None leaves it as it is
            ("auto", unless somebody chose), or takes "mkl" for a replay.
        autocast: Type for matrix products, such as ``torch.bfloat16``; None for ``dtype``.
        num_quantization_bits: Bits in which an element of a gradient travels: 1, 2, 4, 8, 16, or
            32 for all of them.
        block_size: Samples after which ranks that train for themselves meet by block momentum;
            None sums gradients in every step.

    Raises:
        ValueError: Few bits are asked for and block momentum too, which sends no gradients.
    """

    num_minibatches: int = NUM_MINIBATCHES["fast"]
    minibatch_size: int = MINIBATCH_SIZE
    seed: int = 1
    data_dir: str | None = None
    dtype: torch.dtype = torch.float32
    progress_frequency: int | None = None
    is_cntk_replay: bool = False
    matrix_product: str | None = None
    autocast: torch.dtype | None = None
    num_quantization_bits: int = 32
    block_size: int | None = None

    def __post_init__(self) -> None:
        """Refuse what would be ignored."""
        if self.block_size is not None and self.num_quantization_bits < 32:
            raise ValueError(
                f"num_quantization_bits={self.num_quantization_bits} and a block size: "
                "block momentum sums no gradients, so there is nothing to quantise"
            )

    def frequency(self) -> int:
        """Generator updates between two progress lines."""
        return self.progress_frequency or max(1, self.num_minibatches // 50)


@contextmanager
def frozen(network: nn.Module) -> Iterator[None]:
    """Within the block, backward goes through the network but computes no gradient for it."""
    network.requires_grad_(False)
    try:
        yield
    finally:
        network.requires_grad_(True)


class BasicGan:
    """Both players with their trainers: what a loop of one's own needs.

    Another GAN is a subclass with networks, a rule, ``scale`` and ``judge`` of its own.

    Args:
        config: What to train.
        is_verbose: Whether to print progress.

    Raises:
        DataError: The data folder doesn't hold MNIST; the message says what to do.
        ValueError: The number of ranks doesn't suit a replay or block momentum: take another.

    **Distributed:** collective in a session of several ranks.
    """

    generator_updates = 1
    """Of each step, all with the same noise."""

    scale = staticmethod(scale_pixels)
    """Brings pixels to the range of the generator's output."""

    def __init__(self, config: GanConfig, is_verbose: bool = True) -> None:
        ranks = session.start()
        self.config = config
        if config.matrix_product or config.is_cntk_replay:
            matrix_product(config.matrix_product or "mkl")
        self.partition = (ranks.world_size, ranks.rank)
        _check_parts(config, ranks.world_size)
        generator, discriminator = self.networks()
        self.generator = generator.to(ranks.device, config.dtype)
        self.discriminator = discriminator.to(ranks.device, config.dtype)
        images = mnist(config.data_dir).train
        self.source: MinibatchSource | CntkReader = MinibatchSource(images, seed=config.seed)
        self.noise: NoiseSource | CntkNoise = NoiseSource(NOISE_SIZE, seed=config.seed)
        if config.is_cntk_replay:
            self.source = CntkReader(images)
            self.noise = CntkNoise(NOISE_SIZE)
        self.device = ranks.device
        self._buffer = torch.empty(0, IMAGE_SIZE, dtype=config.dtype, device=ranks.device)
        frequency = config.frequency()
        printers = is_verbose and ranks.is_main
        self.d_trainer = Trainer(
            self.discriminator,
            self.d_criterion,
            self._learner(self.discriminator),
            [ProgressPrinter(frequency * DISCRIMINATOR_STEPS)] if printers else [],
        )
        self.g_trainer = Trainer(
            self.generator,
            self.g_criterion,
            self._learner(self.generator),
            [ProgressPrinter(frequency)] if printers else [],
        )

    def networks(self) -> tuple[nn.Module, nn.Module]:
        """Make the generator and the discriminator, equal on all ranks."""
        generator, discriminator = Generator(self.config.seed), Discriminator(self.config.seed + 1)
        if self.config.is_cntk_replay:
            for network in (generator, discriminator):
                for layer in (network.hidden, network.output):
                    cntk_xavier_uniform_(layer.weight)
        return generator, discriminator

    def rule(self, network: nn.Module) -> Learner:
        """Make the local rule by which a network learns."""
        return fsadagrad(
            network.parameters(),
            lr=learning_parameter_schedule_per_sample(LEARNING_RATE),
            momentum=momentum_schedule_per_sample(MOMENTUM),
        )

    def judge(self, discriminator: nn.Module, images: torch.Tensor) -> torch.Tensor:
        """Judge n real images and n generated ones after them, (2 * n, 784), in one call."""
        probabilities: torch.Tensor = discriminator(images)
        return probabilities

    def _learner(self, network: nn.Module) -> DistributedLearner:
        rule = self.rule(network)
        if self.config.block_size is not None:
            return block_momentum_distributed_learner(rule, self.config.block_size)
        bits = self.config.num_quantization_bits
        return data_parallel_distributed_learner(rule, num_quantization_bits=bits)

    def next_images(self) -> Minibatch:
        """This rank's part of the next minibatch of images. Every rank must call it."""
        return self.source.next_minibatch(self.config.minibatch_size, *self.partition)

    def next_noise(self) -> torch.Tensor:
        """This rank's part of the next minibatch of noise, (n_local, 100). Every rank calls it."""
        noise = self.noise.next(self.config.minibatch_size, *self.partition)
        return noise.to(self.device, self.config.dtype)

    def d_criterion(
        self, discriminator: nn.Module, pixels: torch.Tensor, noise: torch.Tensor
    ) -> torch.Tensor:
        """Discriminator's loss per pair, (n,): real and generated images in one forward."""
        n = len(pixels)
        images = self._images(2 * n)
        self.scale(pixels.to(self.device), out=images[:n])
        with mixed_precision(self.device, self.config.autocast):
            with torch.no_grad():
                images[n:] = self.generator(noise)
            d_real, d_fake = self.judge(discriminator, images).chunk(2)
        return discriminator_loss(d_real, d_fake)

    def _images(self, rows: int) -> torch.Tensor:
        """Memory for the discriminator's input, (rows, 784): the same in every step."""
        if len(self._buffer) < rows:
            self._buffer = torch.empty(
                rows, IMAGE_SIZE, dtype=self.config.dtype, device=self.device
            )
        return self._buffer[:rows]

    def g_criterion(self, generator: nn.Module, noise: torch.Tensor) -> torch.Tensor:
        """Generator's loss per sample, (n,)."""
        with mixed_precision(self.device, self.config.autocast):
            d_fake = self.discriminator(generator(noise))
        return generator_loss(d_fake)

    def step(self) -> list[LossRecord]:
        """Two updates of the discriminator, then ``generator_updates`` of the generator.

        Returns:
            Their records, in order.

        **Distributed:** collective; the records are equal on all ranks.
        """
        records = []
        for _ in range(DISCRIMINATOR_STEPS):
            noise = self.next_noise()
            updated = self.d_trainer.train_minibatch(self.next_images().features, noise)
            records.append(_record("D", self.d_trainer, updated))
        noise = self.next_noise()
        for _ in range(self.generator_updates):
            with frozen(self.discriminator):
                updated = self.g_trainer.train_minibatch(noise)
            records.append(_record("G", self.g_trainer, updated))
        return records


def _check_parts(config: GanConfig, world_size: int) -> None:
    """Refuse what would end in ranks that wait for each other in different meetings.

    Raises:
        ValueError: The number of ranks doesn't suit the configuration.
    """
    size = config.minibatch_size
    if config.is_cntk_replay and (size % world_size or world_size > CNTK_WORKERS):
        raise ValueError(
            f"CNTK's example can't run on {world_size} ranks, so there is nothing to repeat: take "
            f"1 to {CNTK_WORKERS}, of which a minibatch of {size} samples is a multiple"
        )
    if config.block_size is not None and size % world_size:
        raise ValueError(
            f"with block momentum each rank needs as many samples as the others: a minibatch of "
            f"{size} is no multiple of {world_size} ranks"
        )


def _record(network: Literal["D", "G"], trainer: Trainer, is_updated: bool) -> LossRecord:
    return LossRecord(
        network,
        trainer.previous_minibatch_loss_average,
        trainer.previous_minibatch_sample_count,
        trainer.total_number_of_samples_seen,
        is_updated,
    )
