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
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import torch

from tutorial_lib.data.atomic import atomic_write
from tutorial_lib.data.errors import DataError
from tutorial_lib.distributed import session
from tutorial_lib.models.gan import Discriminator, Generator
from tutorial_lib.models.matrix_product import NAMES
from tutorial_lib.training.checkpoint import save_generator
from tutorial_lib.training.gan import (
    LEARNING_RATE,
    MINIBATCH_SIZE,
    MOMENTUM,
    NUM_MINIBATCHES,
    BasicGan,
    GanConfig,
    LossRecord,
    frozen,
)
from tutorial_lib.training.samples import draw_samples

BLOCK_SIZE = 10 * MINIBATCH_SIZE

__all__ = [
    "LEARNING_RATE",
    "MOMENTUM",
    "BasicGan",
    "GanConfig",
    "GanResult",
    "frozen",
    "train_gan",
]


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
        autocast=torch.bfloat16 if options.bf16 else None,
        num_quantization_bits=options.num_quantization_bits,
        block_size=options.block_size if options.learner == "block_momentum" else None,
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
    parser.add_argument(
        "--learner",
        choices=["data_parallel", "block_momentum"],
        default="data_parallel",
        help="sum gradients in every step, or let the ranks meet after every block",
    )
    parser.add_argument(
        "--num-quantization-bits",
        type=int,
        choices=[1, 2, 4, 8, 16, 32],
        default=32,
        help="bits in which an element of a gradient travels (default: %(default)s)",
    )
    parser.add_argument(
        "--block-size",
        type=_positive,
        default=BLOCK_SIZE,
        metavar="N",
        help="samples of all ranks in a block of block momentum (default: %(default)s)",
    )
    parser.add_argument("--bf16", action="store_true", help="multiply matrices in bfloat16")
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
