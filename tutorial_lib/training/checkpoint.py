"""Files of tensors: whole or not there, nothing in them but tensors and plain values."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn

from tutorial_lib.data.atomic import atomic_write
from tutorial_lib.data.errors import DataError
from tutorial_lib.distributed import session
from tutorial_lib.models import dcgan, gan

GENERATOR_FORMAT = "gan-tutorial generator 1"
NETWORKS: dict[str, type[nn.Module]] = {"gan": gan.Generator, "dcgan": dcgan.Generator}
REMEDY = "Train one with: python -m tutorial_lib.training.basic_gan --save FILE"

T = TypeVar("T")


def write_checkpoint(path: str | os.PathLike[str], content: dict[str, Any]) -> None:
    """Write a file that ``read_checkpoint`` reads, whole or not at all.

    Args:
        path: The file to make or replace; the last one stays when this fails.
        content: Tensors and plain values, and the file's ``"format"``.

    Raises:
        OSError: The file can't be written, on a full disk for example: make room.

    **Distributed:** not collective; see ``on_main``.
    """
    try:
        with atomic_write(path) as file:
            torch.save(content, file)
    except (OSError, RuntimeError) as failure:  # torch has a RuntimeError for a full disk
        if "KeyboardInterrupt" in str(failure):  # and for an interrupt that struck in its C++
            raise KeyboardInterrupt from failure
        raise OSError(f"rank 0 could not write the checkpoint {path}: {failure}") from failure


def read_checkpoint(
    path: str | os.PathLike[str], file_format: str, expected: str, remedy: str
) -> dict[str, Any]:
    """Read a file of tensors; code inside it is never run.

    Args:
        path: The file.
        file_format: What its ``"format"`` must be.
        expected: For the error: what a good file is.
        remedy: For the error: what the reader can do.

    Returns:
        Its content, on the CPU.

    Raises:
        DataError: The file is missing, cut short, or of another kind.
    """
    if not Path(path).is_file():
        raise DataError(path, expected, "no such file", remedy)
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a foreign file can make torch raise anything at all
        reason = (str(error) or type(error).__name__).splitlines()[0]
        found = f"a file that torch can't read ({reason})"
        raise DataError(path, expected, found, remedy) from error
    if not isinstance(content, dict) or content.get("format") != file_format:
        raise DataError(path, expected, "another torch file", remedy)
    return content


def on_main(work: Callable[[], T]) -> T:
    """Let rank 0 do something, and every rank have what came of it, an error included.

    Args:
        work: Called on rank 0 only.

    Returns:
        What it returned there.

    Raises:
        OSError: As rank 0 raised it; so every rank knows, and none waits for the others.
        ValueError: Likewise; ``DataError`` is one.
        RuntimeError: What else happened on rank 0.

    **Distributed:** collective; no rank goes on before the work is done.
    """
    ranks = session.current()
    if ranks is None or ranks.world_size == 1:
        return work()
    outcome: list[Any] = [None, None]
    if ranks.is_main:
        try:
            outcome = [work(), None]
        except (OSError, ValueError) as error:
            outcome = [None, error]
        except Exception as error:  # which may not survive the way to another rank
            outcome = [None, RuntimeError(f"rank 0 failed: {error!r}")]
    dist.broadcast_object_list(outcome)
    result, failure = outcome
    if failure is not None:
        raise failure
    return result  # type: ignore[no-any-return]  # it is rank 0's T


def save_generator(path: str | os.PathLike[str], generator: nn.Module, **facts: Any) -> None:
    """Write a generator's weights, whole or not at all.

    Args:
        path: The file to make or replace.
        generator: The plain module, of the GAN or the DCGAN, on any device.
        **facts: Numbers and strings to keep beside the weights: steps, seed, losses.

    Raises:
        OSError: The file can't be written, on a full disk for example: make room.

    **Distributed:** not collective; call it on rank 0 only.
    """
    weights = {name: value.detach().cpu() for name, value in generator.state_dict().items()}
    (network,) = (name for name, kind in NETWORKS.items() if isinstance(generator, kind))
    content = {"format": GENERATOR_FORMAT, "network": network, "weights": weights, "facts": facts}
    write_checkpoint(path, content)


def load_generator(path: str | os.PathLike[str]) -> tuple[nn.Module, dict[str, Any]]:
    """Read what ``save_generator`` wrote; code inside a file is never run.

    Args:
        path: The file.

    Returns:
        The generator, on the CPU and in the type it was saved in, and the facts saved with it.

    Raises:
        DataError: The file is missing, cut short, or no generator of this project.
    """
    expected = "a generator saved by this project"
    content = read_checkpoint(path, GENERATOR_FORMAT, expected, REMEDY)
    network = content.get("network", "gan")
    if network not in NETWORKS:
        raise DataError(path, expected, f"another network ({network!r})", REMEDY)
    generator = NETWORKS[network]()
    weights = content["weights"]
    try:
        generator.to(next(iter(weights.values())).dtype).load_state_dict(weights)
    except RuntimeError as error:
        raise DataError(path, expected, f"other weights ({error})", REMEDY) from error
    return generator, content["facts"]
