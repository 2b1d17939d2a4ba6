"""A trainer's checkpoint: one file by rank 0, each rank's own state in it, whole or not there."""

from __future__ import annotations

import io
import os
import pickle
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from tutorial_lib.data.errors import DataError
from tutorial_lib.distributed import session
from tutorial_lib.learners.distributed_learner import DistributedLearner, metric_aggregator
from tutorial_lib.training.checkpoint import on_main, read_checkpoint, write_checkpoint
from tutorial_lib.training.rank_state import load_own_state, own_state

if TYPE_CHECKING:
    from tutorial_lib.training.trainer import Trainer

FORMAT = "gan-tutorial trainer 2"
EXPECTED = "a checkpoint of this training"
REMEDY = "Give a checkpoint that save_checkpoint wrote, and make the trainer as it was then"


def save_checkpoint(trainer: Trainer, path: str | os.PathLike[str], external_state: Any) -> None:
    """Write model, learners and counts, and every rank's own ``external_state``.

    Args:
        trainer: Between two minibatches.
        path: The file to make or replace; the last one stays whole when this fails.
        external_state: This rank's: tensors, numbers, text, and lists and dicts of them.

    Raises:
        TypeError: ``external_state`` holds something else, on some rank.
        OSError: Rank 0 can't write the file. Raised on all ranks.

    **Distributed:** collective.
    """
    # Learners first: block momentum brings the ranks to the same point, and their parameters.
    learners = [learner.state_dict() for learner in trainer.parameter_learners]
    aggregator = metric_aggregator(trainer.parameter_learners)
    if aggregator is not None:
        trainer.total_number_of_samples_seen = aggregator.total_number_of_samples_seen
    ranks = session.current()
    world_size = ranks.world_size if ranks is not None else 1
    error: Exception | None = None
    try:
        _check_plain(external_state)
    except pickle.UnpicklingError as refused:
        reason = str(refused).splitlines()[0]
        error = TypeError(f"external_state may hold tensors and plain values only: {reason}")
    own = (external_state if error is None else None, _own_state(trainer), error)
    everyone: list[Any] = [own]
    if world_size > 1:
        everyone = [None] * world_size
        dist.all_gather_object(everyone, own)
    for rank, (_, _, failure) in enumerate(everyone):
        if failure is not None:
            raise type(failure)(f"rank {rank}: {failure}")
    state = {
        "format": FORMAT,
        "model": trainer.training_network.state_dict(),
        "learners": learners,
        "total_number_of_samples_seen": trainer.total_number_of_samples_seen,
        "external": [external for external, _, _ in everyone],
        "ranks": [of_rank for _, of_rank, _ in everyone],
    }
    on_main(lambda: write_checkpoint(path, state))


def restore_from_checkpoint(trainer: Trainer, path: str | os.PathLike[str]) -> Any:
    """Put a trainer where it was when ``save_checkpoint`` wrote the file.

    The process then multiplies matrices with the library that it did then, so that it rounds as
    an uninterrupted training does.

    Args:
        trainer: Made as it was then; the number of ranks may be another.
        path: The file; only rank 0 needs to see it.

    Returns:
        This rank's external state; rank 0's, on a rank that wasn't there then.

    Raises:
        DataError: The file is missing, damaged or another training's; the model is as before.
            When it's a learner that can't take its state, make the trainer anew: those before
            it have taken theirs.

    **Distributed:** collective.
    """
    state = on_main(lambda: _read(trainer, path))
    for number, learner in enumerate(trainer.parameter_learners):
        try:
            learner.load_state_dict(state["learners"][number])
        except (ValueError, KeyError) as error:
            found = f"a state that learner {number} can't take ({error})"
            raise DataError(path, EXPECTED, found, REMEDY) from error
    trainer.training_network.load_state_dict(state["model"])
    trainer.start_at(state["total_number_of_samples_seen"])
    ranks, external = session.current(), state["external"]
    rank, world_size = (ranks.rank, ranks.world_size) if ranks is not None else (0, 1)
    saved_rank = rank if rank < len(external) else 0
    load_own_state(trainer.training_network, state["ranks"][saved_rank])
    if world_size == len(external):
        for learner, own in zip(
            _distributed(trainer), state["ranks"][rank]["learners"], strict=True
        ):
            learner.load_own_state(own)
    return external[saved_rank]


def _own_state(trainer: Trainer) -> dict[str, Any]:
    """What differs between ranks."""
    learners = [learner.own_state() for learner in _distributed(trainer)]
    return {"learners": learners, **own_state(trainer.training_network)}


def _distributed(trainer: Trainer) -> list[DistributedLearner]:
    return [one for one in trainer.parameter_learners if isinstance(one, DistributedLearner)]


def _check_plain(value: Any) -> None:
    """Refuse now what could not be read back without running code from the file."""
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    torch.load(file, weights_only=True)


def _read(trainer: Trainer, path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the file's content, once it is sure that the trainer can take it."""
    state = read_checkpoint(path, FORMAT, EXPECTED, REMEDY)
    theirs = {name: tuple(value.shape) for name, value in state["model"].items()}
    network = trainer.training_network.state_dict()
    ours = {name: tuple(value.shape) for name, value in network.items()}
    if theirs != ours:
        names = sorted(
            name for name in theirs.keys() | ours.keys() if theirs.get(name) != ours.get(name)
        )
        found = f"another model, which differs in {names}"
        raise DataError(path, EXPECTED, found, REMEDY)
    if len(state["learners"]) != len(trainer.parameter_learners):
        raise DataError(path, EXPECTED, f"{len(state['learners'])} learners", REMEDY)
    return state
