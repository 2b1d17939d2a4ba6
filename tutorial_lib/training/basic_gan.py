"""CNTK's Basic GAN on MNIST, alone or on all ranks.

    python -m tutorial_lib.training.basic_gan                      one process
    mpiexec -n 4 python -m tutorial_lib.training.basic_gan         four ranks under MPI
    torchrun --nproc-per-node 4 -m tutorial_lib.training.basic_gan the same without MPI

Fast mode trains 300 minibatches of 1024 samples: about 10 s on two cores. The generator's loss
then lies near 2.08 (2.084 +- 0.178 over 13 seeds of CNTK), whatever the number of ranks.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch
from torch import nn

from tutorial_lib.data.atomic import atomic_write
from tutorial_lib.data.cntk_reader import CntkReader
from tutorial_lib.data.datasets import mnist
from tutorial_lib.data.errors import DataError
from tutorial_lib.data.minibatch_source import Minibatch, MinibatchSource
from tutorial_lib.data.noise import CntkNoise, NoiseSource
from tutorial_lib.distributed import session
from tutorial_lib.learners.data_parallel import data_parallel_distributed_learner
from tutorial_lib.learners.fsadagrad import fsadagrad
from tutorial_lib.learners.learner import Learner
from tutorial_lib.learners.schedules import (
    learning_parameter_schedule_per_sample,
    momentum_schedule_per_sample,
)
from tutorial_lib.models.gan import IMAGE_SIZE, NOISE_SIZE, Discriminator, Generator, scale_pixels
from tutorial_lib.models.init import cntk_xavier_uniform_
from tutorial_lib.models.losses import discriminator_loss, generator_loss
from tutorial_lib.models.matrix_product import NAMES, matrix_product
from tutorial_lib.training.checkpoint import save_generator
from tutorial_lib.training.progress import ProgressPrinter
from tutorial_lib.training.samples import draw_samples
from tutorial_lib.training.trainer import Trainer

NUM_MINIBATCHES = {"fast": 300, "full": 40_000}
MINIBATCH_SIZE = 1024  # of all ranks together
DISCRIMINATOR_STEPS = 2  # discriminator updates for each update of the generator
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
    """

    num_minibatches: int = NUM_MINIBATCHES["fast"]
    minibatch_size: int = MINIBATCH_SIZE
    seed: int = 123
    data_dir: str | None = None
    dtype: torch.dtype = torch.float32
    progress_frequency: int | None = None
    is_cntk_replay: bool = False
    matrix_product: str | None = None

    def frequency(self) -> int:
        """Generator updates between two progress lines."""
        return self.progress_frequency or max(1, self.num_minibatches // 50)


@dataclass
class GanResult:
    """What training gives back.

    Attributes:
        generator: The trained plain module; equal on all ranks.
        discriminator: Likewise.
        losses: One record per update, in order; equal on all ranks.
        seconds: Wall-clock time of the training loop.
    """

    generator: Generator
    discriminator: Discriminator
    losses: list[LossRecord] = field(default_factory=list)
    seconds: float = 0.0

    def curve(self, network: Literal["D", "G"]) -> list[float]:
        """Loss averages of one network, one per update."""
        return [record.loss_average for record in self.losses if record.network == network]


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

    Args:
        config: What to train.
        is_verbose: Whether to print progress.

    **Distributed:** collective in a session of several ranks.
    """

    def __init__(self, config: GanConfig, is_verbose: bool = True) -> None:
        ranks = session.start()
        self.config = config
        if config.matrix_product or config.is_cntk_replay:
            matrix_product(config.matrix_product or "mkl")
        self.partition = (ranks.world_size, ranks.rank)
        self.generator = Generator(config.seed).to(ranks.device, config.dtype)
        self.discriminator = Discriminator(config.seed + 1).to(ranks.device, config.dtype)
        images = mnist(config.data_dir).train
        self.source: MinibatchSource | CntkReader = MinibatchSource(images, seed=config.seed)
        self.noise: NoiseSource | CntkNoise = NoiseSource(NOISE_SIZE, seed=config.seed)
        if config.is_cntk_replay:
            self.source = CntkReader(images)
            self.noise = CntkNoise(NOISE_SIZE)
            for network in (self.generator, self.discriminator):
                for layer in (network.hidden, network.output):
                    cntk_xavier_uniform_(layer.weight)
        self.device = ranks.device
        self._buffer = torch.empty(0)
        frequency = config.frequency()
        printers = is_verbose and ranks.is_main
        self.d_trainer = Trainer(
            self.discriminator,
            self.d_criterion,
            data_parallel_distributed_learner(_learner(self.discriminator)),
            [ProgressPrinter(frequency * DISCRIMINATOR_STEPS)] if printers else [],
        )
        self.g_trainer = Trainer(
            self.generator,
            self.g_criterion,
            data_parallel_distributed_learner(_learner(self.generator)),
            [ProgressPrinter(frequency)] if printers else [],
        )

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
        with torch.no_grad():
            generated = self.generator(noise)
        n = len(pixels)
        images = self._images(2 * n)
        scale_pixels(pixels.to(self.device), out=images[:n])
        images[n:] = generated
        d_real, d_fake = discriminator(images).chunk(2)
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
        return generator_loss(self.discriminator(generator(noise)))

    def step(self) -> list[LossRecord]:
        """Two updates of the discriminator, one of the generator.

        Returns:
            Their records, in order.

        **Distributed:** collective; the records are equal on all ranks.
        """
        records = []
        for _ in range(DISCRIMINATOR_STEPS):
            noise = self.next_noise()
            updated = self.d_trainer.train_minibatch(self.next_images().features, noise)
            records.append(_record("D", self.d_trainer, updated))
        with frozen(self.discriminator):
            updated = self.g_trainer.train_minibatch(self.next_noise())
        records.append(_record("G", self.g_trainer, updated))
        return records


def _learner(network: nn.Module) -> Learner:
    return fsadagrad(
        network.parameters(),
        lr=learning_parameter_schedule_per_sample(LEARNING_RATE),
        momentum=momentum_schedule_per_sample(MOMENTUM),
    )


def _record(network: Literal["D", "G"], trainer: Trainer, is_updated: bool) -> LossRecord:
    return LossRecord(
        network,
        trainer.previous_minibatch_loss_average,
        trainer.previous_minibatch_sample_count,
        trainer.total_number_of_samples_seen,
        is_updated,
    )


def train_gan(
    config: GanConfig | None = None,
    on_step: Callable[[int, GanResult], None] | None = None,
    is_verbose: bool = True,
) -> GanResult:
    """Train the GAN.

    Args:
        config: What to train; None for fast mode.
        on_step: Called after each step with its number, from 1, and the result so far.
        is_verbose: Whether rank 0 prints progress.

    Returns:
        Networks, losses and time.

    Raises:
        DataError: The data folder doesn't hold MNIST; the message says what to do.

    **Distributed:** collective in a session of several ranks.

    **Source:** CNTK 2.7, ``Basic_GAN_Distributed.py`` and notebook 206A.
    """
    config = config or GanConfig()
    gan = BasicGan(config, is_verbose)
    result = GanResult(gan.generator, gan.discriminator)
    start_s = time.perf_counter()
    for number in range(1, config.num_minibatches + 1):
        result.losses += gan.step()
        result.seconds = time.perf_counter() - start_s
        if on_step is not None:
            on_step(number, result)
    return result


def main(arguments: list[str] | None = None) -> None:
    """Run the script; see ``--help``."""
    options = _parser().parse_args(arguments)
    config = GanConfig(
        num_minibatches=options.minibatches or NUM_MINIBATCHES[options.mode],
        minibatch_size=options.minibatch_size,
        seed=options.seed,
        data_dir=options.datadir,
        dtype=getattr(torch, options.dtype),
        is_cntk_replay=options.replay_cntk,
        matrix_product=options.matrix_product,
    )
    with session.script(options.backend) as ranks:
        try:
            result = train_gan(config)
        except DataError as error:
            sys.exit(f"error: {error}")
        # One write per rank: mpiexec doesn't mix the ranks' lines up.
        sys.stdout.write(
            f"Training loss of the generator at worker: {{{ranks.rank}}} is: "
            f"{{{result.curve('G')[-1]:f}}}, time taken is: {{{result.seconds:.0f}}} seconds.\n"
        )
        sys.stdout.flush()
        if ranks.is_main:
            _write_results(result, config, ranks.world_size, options)
        ranks.barrier()


def _write_results(
    result: GanResult, config: GanConfig, workers: int, options: argparse.Namespace
) -> None:
    if options.losses:
        with atomic_write(options.losses, "w", encoding="utf-8") as file:
            json.dump({"rank": 0, "workers": workers, "losses": result.losses}, file)
    if options.save:
        facts = {"minibatches": config.num_minibatches, "seed": config.seed, "workers": workers}
        save_generator(options.save, result.generator, **facts)
    if options.plot:
        from tutorial_lib.display.grid import sample_grid

        sample_grid(draw_samples(result.generator)).save(options.plot)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="basic_gan",
        description="Train CNTK's Basic GAN on MNIST, alone, under mpiexec or under torchrun.",
    )
    parser.add_argument(
        "--datadir",
        "-datadir",
        metavar="DIR",
        help="folder with MNIST as IDX or CTF files (default: the copy in this package)",
    )
    parser.add_argument(
        "--mode", choices=NUM_MINIBATCHES, default="fast", help="300 or 40,000 minibatches"
    )
    parser.add_argument(
        "--minibatches", type=_positive, metavar="N", help="number of minibatches, instead of mode"
    )
    parser.add_argument(
        "--minibatch-size",
        type=_positive,
        default=MINIBATCH_SIZE,
        metavar="N",
        help="samples of all ranks together (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=GanConfig.seed, help="default: %(default)s")
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float32")
    parser.add_argument("--backend", help="of torch.distributed (default: chosen by the machine)")
    parser.add_argument(
        "--replay-cntk",
        action="store_true",
        help="repeat CNTK 2.7's run number for number, its accidents included",
    )
    parser.add_argument(
        "--matrix-product",
        choices=NAMES,
        help="library that multiplies matrices (default: the faster one; a replay takes mkl)",
    )
    parser.add_argument("--plot", metavar="FILE", help="write the 6x6 grid of samples as PNG")
    parser.add_argument("--losses", metavar="FILE", help="write all losses as JSON")
    parser.add_argument(
        "--save", metavar="FILE", help="keep the generator, for gan-tutorial sample"
    )
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, not {number}")
    return number


if __name__ == "__main__":
    main()
