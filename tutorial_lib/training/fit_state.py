"""All that a training depends on, in one file, so that it can go on as if never interrupted."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from tutorial_lib.data.errors import DataError
from tutorial_lib.training.checkpoint import on_main, read_checkpoint, write_checkpoint
from tutorial_lib.training.evaluation import averaged_buffers
from tutorial_lib.training.rank_state import load_own_state, own_state

if TYPE_CHECKING:
    from tutorial_lib.training.fit import Trainer

FORMAT = "gan-tutorial training 1"
FILE_NAME = "checkpoint.pt"


def save_state(trainer: Trainer, path: str | os.PathLike[str]) -> None:
    """Write a trainer's whole state, on rank 0, whole or not at all.

    Args:
        trainer: Between two steps.
        path: The file to make or replace; the last one stays whole when this fails.

    Raises:
        OSError: Rank 0 can't write the file. Raised on all ranks.

    **Distributed:** collective: the ranks' random states and running statistics are collected.
    """
    ranks = trainer.ranks
    own = _own_state(trainer)
    everyone: list[Any] = [own]
    if ranks.world_size > 1:
        everyone = [None] * ranks.world_size
        dist.gather_object(own, everyone if ranks.is_main else None)
    with averaged_buffers(trainer.training_network, ranks):
        state = {
            "format": FORMAT,
            "network": trainer.training_network.state_dict(),
            "learner": trainer.learner.state_dict(),
            "global_step": trainer.global_step,
            "data": trainer.pipeline.state_dict(),
            "callbacks": [callback.state_dict() for callback in trainer.callbacks],
            "ranks": everyone,
        }
        on_main(lambda: write_checkpoint(path, state))


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
    state = on_main(lambda: _read(path))
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
    return {"random": trainer.random.state_dict(), **own_state(trainer.training_network)}


def _restore_own_state(trainer: Trainer, state: dict[str, Any]) -> None:
    trainer.random.load_state_dict(state["random"])
    load_own_state(trainer.training_network, state)


def _read(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Return the file's content, None without one."""
    if not Path(path).is_file():
        return None
    expected = "a training saved by this project"
    return read_checkpoint(path, FORMAT, expected, "Move it away to start afresh")
