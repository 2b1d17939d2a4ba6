"""CNTK's Basic GAN on MNIST, alone or on all ranks.

    python -m tutorial_lib.training.basic_gan                      one process
    mpiexec -n 4 python -m tutorial_lib.training.basic_gan         four ranks under MPI
    torchrun --nproc-per-node 4 -m tutorial_lib.training.basic_gan the same without MPI

Fast mode trains 300 minibatches of 1024 samples: about 10 s on two cores. The generator's loss
then lies near 2.08 (2.084 +- 0.178 over 13 seeds of CNTK), whatever the number of ranks.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from tutorial_lib.distributed import session
from tutorial_lib.training.arguments import at_least_one, bits
from tutorial_lib.training.gan import (
    LEARNING_RATE,
    MINIBATCH_SIZE,
    MOMENTUM,
    NUM_MINIBATCHES,
    BasicGan,
    GanConfig,
    frozen,
)
from tutorial_lib.training.gan_loop import GanResult, run_steps
from tutorial_lib.training.gan_script import config_arguments, gan_parser, write_results

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
    return run_steps(BasicGan(config or GanConfig(), is_verbose), on_step)


def main(arguments: list[str] | None = None) -> None:
    """Run the script; see ``--help``."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        config = GanConfig(
            **config_arguments(options, NUM_MINIBATCHES),
            is_cntk_replay=options.replay_cntk,
            num_quantization_bits=options.num_quantization_bits,
            block_size=options.block_size if options.learner == "block_momentum" else None,
        )
    except ValueError as error:
        parser.error(str(error))
    with session.script(options.backend) as ranks:
        try:
            gan = BasicGan(config)
        except ValueError as error:  # what it can't train with, and data that are none
            sys.exit(f"error: {error}")
        result = run_steps(gan)
        write_results(result, config, ranks, options)


def _parser() -> argparse.ArgumentParser:
    parser = gan_parser(
        "basic_gan", "Train CNTK's Basic GAN on MNIST.", NUM_MINIBATCHES, MINIBATCH_SIZE
    )
    parser.add_argument(
        "--replay-cntk",
        action="store_true",
        help="repeat CNTK 2.7's run number for number, its accidents included",
    )
    parser.add_argument(
        "--learner",
        choices=["data_parallel", "block_momentum"],
        default="data_parallel",
        help="sum gradients in every step, or let the ranks meet after every block",
    )
    parser.add_argument(
        "--num-quantization-bits",
        type=bits,
        default=32,
        metavar="B",
        help="in which an element of a gradient travels: 1, 2, 4, 8, 16; 32 and more: as it is",
    )
    parser.add_argument(
        "--block-size",
        type=at_least_one,
        default=BLOCK_SIZE,
        metavar="N",
        help="samples of all ranks in a block of block momentum (default: %(default)s)",
    )
    return parser


if __name__ == "__main__":
    main()
