"""A GAN's checkpoint: both players, their data and their losses in one file."""

from __future__ import annotations

import os
from typing import Any

import torch

from tutorial_lib.data.noise import CntkNoise
from tutorial_lib.training.gan import BasicGan, LossRecord
from tutorial_lib.training.gan_loop import GanResult


def save_gan(gan: BasicGan, path: str | os.PathLike[str], result: GanResult) -> None:
    """Write all that ``restore_gan`` needs: the generator's trainer, with the rest beside it.

    Args:
        gan: Between two steps.
        path: The file to make or replace; the last one stays whole when this fails.
        result: Of the steps so far.

    Raises:
        OSError: Rank 0 can't write the file. Raised on all ranks.
        ValueError: The GAN replays a run of CNTK, whose noise has no place to go on from.

    **Distributed:** collective. Running statistics are kept for each rank, as they differ.
    """
    if isinstance(gan.noise, CntkNoise):
        raise ValueError("a replay of CNTK's run can't be saved: let it run to its end")
    trainer = gan.d_trainer
    own = {
        "discriminator": trainer.training_network.state_dict(),
        "learner": _cloned(trainer.parameter_learners[0].state_dict()),
        "source": gan.source.state_dict(),
        "noise": gan.noise.state_dict(),
        "losses": [tuple(record) for record in result.losses],
        "seconds": result.seconds,
    }
    gan.g_trainer.save_checkpoint(path, own)


def restore_gan(gan: BasicGan, path: str | os.PathLike[str]) -> GanResult:
    """Put a GAN where it was when ``save_gan`` wrote the file.

    Args:
        gan: Made with the configuration it had then; the number of ranks may be another. A rank
            that wasn't there then takes rank 0's running statistics.
        path: The file; only rank 0 needs to see it.

    Returns:
        For ``run_steps``.

    Raises:
        DataError: The file is missing, damaged or another training's.
        ValueError: The GAN replays a run of CNTK.

    **Distributed:** collective.
    """
    if isinstance(gan.noise, CntkNoise):
        raise ValueError("a replay of CNTK's run can't be restored: let it begin anew")
    own: dict[str, Any] = gan.g_trainer.restore_from_checkpoint(path)
    trainer = gan.d_trainer
    trainer.training_network.load_state_dict(own["discriminator"])
    trainer.parameter_learners[0].load_state_dict(own["learner"])
    trainer.start_at(trainer.parameter_learners[0].total_number_of_samples_seen)
    gan.source.load_state_dict(own["source"])
    gan.noise.load_state_dict(own["noise"])
    losses = [LossRecord(*record) for record in own["losses"]]
    return GanResult(gan.generator, gan.discriminator, losses, own["seconds"])


def _cloned(value: Any) -> Any:
    """Copy the tensors: a learner's are pieces of one, and pickle sends all of it with each."""
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, dict):
        return {key: _cloned(item) for key, item in value.items()}
    return [_cloned(item) for item in value] if isinstance(value, list) else value
