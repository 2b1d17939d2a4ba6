"""What the GANs' scripts share: their options, and what they print and write at the end."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from typing import Any

import torch

from tutorial_lib.data.atomic import atomic_write
from tutorial_lib.distributed.session import Session
from tutorial_lib.models.matrix_product import NAMES
from tutorial_lib.training.arguments import at_least_one
from tutorial_lib.training.checkpoint import save_generator
from tutorial_lib.training.gan import GanConfig
from tutorial_lib.training.gan_loop import GanResult
from tutorial_lib.training.samples import draw_samples


def gan_parser(
    prog: str, description: str, modes: Mapping[str, int], minibatch_size: int
) -> argparse.ArgumentParser:
    """Return a parser with what all GANs' scripts take."""
    parser = argparse.ArgumentParser(
        prog=prog, description=f"{description} Alone, under mpiexec or under torchrun."
    )
    parser.add_argument(
        "--datadir",
        "-datadir",
        metavar="DIR",
        help="folder with MNIST as IDX or CTF files (default: the copy in this package)",
    )
    lengths = " or ".join(f"{number:,}" for number in modes.values())
    parser.add_argument("--mode", choices=modes, default="fast", help=f"{lengths} minibatches")
    parser.add_argument(
        "--minibatches",
        type=at_least_one,
        metavar="N",
        help="number of minibatches, instead of mode",
    )
    parser.add_argument(
        "--minibatch-size",
        type=at_least_one,
        default=minibatch_size,
        metavar="N",
        help="samples of all ranks together (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=GanConfig.seed, help="default: %(default)s")
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float32")
    parser.add_argument("--backend", help="of torch.distributed (default: chosen by the machine)")
    parser.add_argument(
        "--matrix-product",
        choices=NAMES,
        help="library that multiplies matrices (default: the faster one; a replay takes mkl)",
    )
    parser.add_argument("--bf16", action="store_true", help="multiply matrices in bfloat16")
    parser.add_argument("--plot", metavar="FILE", help="write the 6x6 grid of samples as PNG")
    parser.add_argument("--losses", metavar="FILE", help="write all losses as JSON")
    parser.add_argument(
        "--save", metavar="FILE", help="keep the generator, for gan-tutorial sample"
    )
    return parser


def config_arguments(options: argparse.Namespace, modes: Mapping[str, int]) -> dict[str, Any]:
    """Return the options that ``gan_parser`` added as keywords of a ``GanConfig``."""
    return {
        "num_minibatches": options.minibatches or modes[options.mode],
        "minibatch_size": options.minibatch_size,
        "seed": options.seed,
        "data_dir": options.datadir,
        "dtype": getattr(torch, options.dtype),
        "matrix_product": options.matrix_product,
        "autocast": torch.bfloat16 if options.bf16 else None,
    }


def write_results(
    result: GanResult, config: GanConfig, ranks: Session, options: argparse.Namespace
) -> None:
    """Print CNTK's last line on every rank; rank 0 writes the files that the options name.

    **Distributed:** collective.
    """
    # One write per rank: mpiexec doesn't mix the ranks' lines up.
    sys.stdout.write(
        f"Training loss of the generator at worker: {{{ranks.rank}}} is: "
        f"{{{result.curve('G')[-1]:f}}}, time taken is: {{{result.seconds:.0f}}} seconds.\n"
    )
    sys.stdout.flush()
    if ranks.is_main:
        _write_files(result, config, ranks.world_size, options)
    ranks.barrier()


def _write_files(
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
