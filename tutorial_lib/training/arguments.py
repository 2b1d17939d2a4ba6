"""Command-line arguments that the scripts share."""

from __future__ import annotations

import argparse
from typing import Protocol

from tutorial_lib.learners.quantization import check_bits


class Defaults(Protocol):
    """What a script trains when nothing is said."""

    @property
    def epochs(self) -> int:
        """Times through the data."""

    @property
    def batch_size(self) -> int:
        """Of each rank."""

    @property
    def seed(self) -> int:
        """Of everything random."""


def classifier_parser(prog: str, description: str, defaults: Defaults) -> argparse.ArgumentParser:
    """Return a parser with what all classifiers' scripts take."""
    parser = argparse.ArgumentParser(
        prog=prog, description=f"{description} Alone, under mpiexec or under torchrun."
    )
    parser.add_argument("--datadir", metavar="DIR", help="folder with the data")
    parser.add_argument(
        "--epochs",
        type=at_least_one,
        default=defaults.epochs,
        metavar="N",
        help="times through the data (default: %(default)s)",
    )
    parser.add_argument(
        "--batch-size",
        type=at_least_one,
        default=defaults.batch_size,
        metavar="N",
        help="samples of each rank in a step (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=defaults.seed, help="default: %(default)s")
    parser.add_argument(
        "--scaling",
        choices=["linear", "sqrt", "off"],
        default="linear",
        help="how the learning rate grows with the ranks (default: %(default)s)",
    )
    parser.add_argument(
        "--checkpoints", metavar="DIR", help="save there, and go on from what is there"
    )
    parser.add_argument("--backend", help="of torch.distributed (default: chosen by the machine)")
    return parser


def at_least_one(text: str) -> int:
    """Parse a whole number from 1.

    Raises:
        argparse.ArgumentTypeError: It is less: argparse tells the user.
        ValueError: It is no whole number: likewise.
    """
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, not {number}")
    return number


def bits(text: str) -> int:
    """Parse the number of bits in which an element of a gradient travels.

    Raises:
        argparse.ArgumentTypeError: It can't be packed: argparse tells the user.
        ValueError: It is no whole number: likewise.
    """
    number = int(text)
    try:
        check_bits(number)
    except (ValueError, RuntimeError) as error:
        raise argparse.ArgumentTypeError(
            f"must be 1, 2, 4, 8, 16, or 32 and more for no quantisation, not {number}"
        ) from error
    return number
