"""All that a training depends on, in one file, so that it can go on as if never interrupted."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from tutorial_lib.data.atomic import atomic_write
from tutorial_lib.data.errors import DataError
from tutorial_lib.models.matrix_product import load_matrix_product_state, matrix_product_state
from tutorial_lib.training.evaluation import averaged_buffers

if TYPE_CHECKING:
    from tutorial_lib.training.fit import Trainer

FORMAT = "gan-tutorial training 1"
FILE_NAME = "checkpoint.pt"


def save_state(trainer: Trainer, path: str | os.PathLike[str]) -> None:
    """Write a trainer's whole state, on rank 0, whole or not at all.

    Args:
        trainer: Between two steps.
        path: The file to make or replace.

    **Distributed:** collective: the ranks' random states and running statistics are collected.
    """
    ranks = trainer.ranks
    own = _own_state(trainer)
    everyone: list[Any] = [own]
    if ranks.world_size > 1:
        everyone = [None] * ranks.world_size
        dist.gather_object(own, everyone if ranks.is_main else None)
    with averaged_buffers(trainer.training_network, ranks):
        if ranks.is_main:
            state = {
                "format": FORMAT,
                "network": trainer.training_network.state_dict(),
                "learner": trainer.learner.state_dict(),
                "global_step": trainer.global_step,
                "data": trainer.pipeline.state_dict(),
                "callbacks": [callback.state_dict() for callback in trainer.callbacks],
                "ranks": everyone,
            }
            with atomic_write(path) as file:
                torch.save(state, file)
    ranks.barrier()  # no rank goes on, and perhaps ends, before the file is there


def restore_state(trainer: Trainer, path: str | os.PathLike[str]) -> bool:
    """Put a trainer where it was when ``save_state`` wrote the file, if there is one.

    On as many ranks as before, training goes on bit for bit as if never interrupted. On another
    number it goes on with the same weights, optimizer and place in the data, and fresh random
    states.

    Args:
        trainer: Made as it was then.
        path: The file; only rank 0 needs to see it.

    Returns:
        Whether there was one.

    Raises:
        DataError: The file is damaged, or another network's; move it away, or make the trainer
            as it was.

    **Distributed:** collective.
    """
    ranks = trainer.ranks
    found: list[Any] = [_read(path) if ranks.is_main else None]
    if ranks.world_size > 1:
        dist.broadcast_object_list(found)
    (state,) = found
    if isinstance(state, DataError):
        raise state
    if state is None:
        return False
    try:
        trainer.training_network.load_state_dict(state["network"])
        trainer.learner.load_state_dict(state["learner"])
        trainer.pipeline.load_state_dict(state["data"])
    except (RuntimeError, ValueError, KeyError) as error:
        raise DataError(
            path,
            "the state of this network, optimizer and data",
            f"another's ({error})",
            "Make the trainer as it was when it was saved, or move the file away",
        ) from error
    trainer.global_step = state["global_step"]
    for callback, own in zip(trainer.callbacks, state["callbacks"], strict=False):
        callback.load_state_dict(own)
    if len(state["ranks"]) == ranks.world_size:
        _restore_own_state(trainer, state["ranks"][ranks.rank])
    return True


def _own_state(trainer: Trainer) -> dict[str, Any]:
    """What differs between ranks."""
    return {
        "random": trainer.random.state_dict(),
        "matrix_product": matrix_product_state(),
        "buffers": {n: b.cpu().clone() for n, b in trainer.training_network.named_buffers()},
    }


def _restore_own_state(trainer: Trainer, state: dict[str, Any]) -> None:
    trainer.random.load_state_dict(state["random"])
    load_matrix_product_state(state["matrix_product"])
    buffers = dict(trainer.training_network.named_buffers())
    for name, value in state["buffers"].items():
        buffers[name].copy_(value)


def _read(path: str | os.PathLike[str]) -> dict[str, Any] | DataError | None:
    """The file's content, None without one, or the error, which all ranks must hear of."""
    if not Path(path).is_file():
        return None
    remedy = "Move it away to start afresh"
    expected = "a training saved by this project"
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, EOFError, OSError, pickle.UnpicklingError, ValueError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        found = f"a file that torch can't read ({reason})"
        return DataError(path, expected, found, remedy)
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        return DataError(path, expected, "another torch file", remedy)
    return state
