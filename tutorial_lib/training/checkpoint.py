"""Trained networks on disk: whole files, and nothing in them but tensors and plain values."""

import os
import pickle
from pathlib import Path
from typing import Any

import torch

from tutorial_lib.data.atomic import atomic_write
from tutorial_lib.data.errors import DataError
from tutorial_lib.models.gan import Generator

GENERATOR_FORMAT = "gan-tutorial generator 1"
REMEDY = "Train one with: python -m tutorial_lib.training.basic_gan --save FILE"


def save_generator(path: str | os.PathLike[str], generator: Generator, **facts: Any) -> None:
    """Write a generator's weights, whole or not at all.

    Args:
        path: The file to make or replace.
        generator: The plain module, on any device.
        **facts: Numbers and strings to keep beside the weights: steps, seed, losses.

    **Distributed:** not collective; call it on rank 0 only.
    """
    weights = {name: value.detach().cpu() for name, value in generator.state_dict().items()}
    with atomic_write(path) as file:
        torch.save({"format": GENERATOR_FORMAT, "weights": weights, "facts": facts}, file)


def load_generator(path: str | os.PathLike[str]) -> tuple[Generator, dict[str, Any]]:
    """Read what ``save_generator`` wrote; code inside a file is never run.

    Args:
        path: The file.

    Returns:
        The generator, on the CPU and in the type it was saved in, and the facts saved with it.

    Raises:
        DataError: The file is missing, cut short, or no generator of this project.
    """
    expected = "a generator saved by this project"
    if not Path(path).is_file():
        raise DataError(path, expected, "no such file", REMEDY)
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, EOFError, OSError, pickle.UnpicklingError, ValueError) as error:
        found = f"a file that torch can't read ({str(error).splitlines()[0]})"
        raise DataError(path, expected, found, REMEDY) from error
    if not isinstance(content, dict) or content.get("format") != GENERATOR_FORMAT:
        raise DataError(path, expected, "another torch file", REMEDY)
    generator = Generator()
    weights = content["weights"]
    try:
        generator.to(next(iter(weights.values())).dtype).load_state_dict(weights)
    except RuntimeError as error:
        raise DataError(path, expected, f"other weights ({error})", REMEDY) from error
    return generator, content["facts"]
