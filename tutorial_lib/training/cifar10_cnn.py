"""TensorLayer's CIFAR-10 example: augmented pictures, the same network on one rank or on many.

    python -m tutorial_lib.training.cifar10_cnn --datadir DIR               one process
    mpiexec -n 4 python -m tutorial_lib.training.cifar10_cnn --download     four ranks under MPI
    torchrun --nproc-per-node 4 -m tutorial_lib.training.cifar10_cnn        without MPI

Without --datadir or --download it trains on the package's sample of 2,000 pictures, and says so.
Each rank takes 128 pictures a step: 391, 196 or 98 steps an epoch on 1, 2 or 4 ranks. An epoch on
one rank takes 1 to 2 minutes of one core; docs/accuracy.md says what it leads to.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from tutorial_lib.data.augment import augment, central_crop
from tutorial_lib.data.cifar import cifar10
from tutorial_lib.data.datasets import Dataset
from tutorial_lib.data.errors import DataError
from tutorial_lib.distributed import session
from tutorial_lib.learners.scaling import Scaling
from tutorial_lib.models.classifiers import (
    CifarCnn,
    Initialization,
    classification_losses,
    correct,
)
from tutorial_lib.training.arguments import classifier_parser
from tutorial_lib.training.evaluation import Measured
from tutorial_lib.training.fit import Trainer
from tutorial_lib.training.fit_criterion import TrainingFunc

WEIGHT_PENALTY = 0.004  # on half the squared weights of the two hidden dense layers


@dataclass(frozen=True)
class CifarConfig:
    """What to train.

    Attributes:
        epochs: Times through the training pictures.
        batch_size: Of each rank.
        seed: Of weights, order and augmentation.
        initialization: See ``models.classifiers.CifarCnn``.
        scaling: Of the learning rate; see ``learners.scaling.scaling_factor``.
        learning_rate: Of Adam, before scaling.
        weight_penalty: Weight of the L2 term.
        is_augmented: Whether pictures are changed at random; else the central crop is taken.
        autocast: Type for matrix products; None for float32.
        log_every: Steps between two lines; 0 for none.
    """

    epochs: int = 1
    batch_size: int = 128
    seed: int = 0
    initialization: Initialization = "tensorlayer"
    scaling: Scaling = True
    learning_rate: float = 1e-4
    weight_penalty: float = WEIGHT_PENALTY
    is_augmented: bool = True
    autocast: torch.dtype | None = None
    log_every: int = 20


def build_training(model: CifarCnn, weight_penalty: float) -> TrainingFunc:
    """Return the training function: cross-entropy and L2 term, and the accuracy to log.

    Args:
        model: The plain network, whose weights the L2 term is about.
        weight_penalty: Weight of the L2 term.
    """

    def func(network: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Any:
        logits = network(x)
        losses = classification_losses(logits, y)
        logs = {"cross-entropy": losses, "accuracy": correct(logits, y)}
        return losses + weight_penalty * model.weight_penalty(), logs

    return func


def build_validation(network: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Measured:
    """Cross-entropy and accuracy per sample."""
    logits = network(x)
    return {"loss": classification_losses(logits, y), "accuracy": correct(logits, y)}


def cifar10_trainer(dataset: Dataset, config: CifarConfig | None = None, **options: Any) -> Trainer:
    """Make the trainer of this example; its validation set is the test set, as in theirs.

    Args:
        dataset: See ``data.cifar.cifar10``.
        config: What to train; None for TensorLayer's values.
        **options: Further keywords of ``Trainer``.

    Returns:
        The trainer.

    **Distributed:** collective.

    **Source:** TensorLayer 1.11, ``tutorial_cifar10_distributed_trainer.py``.
    """
    config = config or CifarConfig()
    model = CifarCnn(config.initialization, config.seed)
    batch_map: Callable[..., torch.Tensor] = augment if config.is_augmented else _central
    return Trainer(
        model,
        dataset.train,
        build_training(model, config.weight_penalty),
        torch.optim.Adam,
        {"lr": config.learning_rate},
        batch_size=config.batch_size,
        prefetch_size=2,
        scaling_learning_rate=config.scaling,
        log_step_size=config.log_every,
        validation_dataset=dataset.test,
        build_validation_func=build_validation,
        epochs=config.epochs,
        batch_map=batch_map,
        validation_map=central_crop,
        seed=config.seed,
        autocast=config.autocast,
        **options,
    )


def _central(images: torch.Tensor, random: torch.Tensor) -> torch.Tensor:
    return central_crop(images)


def main(arguments: list[str] | None = None) -> None:
    """Run the script; see ``--help``."""
    parser = classifier_parser(
        "cifar10_cnn", "Train TensorLayer's CIFAR-10 example.", CifarConfig()
    )
    parser.add_argument("--download", action="store_true", help="fetch CIFAR-10 (170 MB)")
    parser.add_argument("--no-weight-penalty", action="store_true", help="leave out the L2 term")
    parser.add_argument("--bf16", action="store_true", help="matrix products in bfloat16")
    options: argparse.Namespace = parser.parse_args(arguments)
    config = CifarConfig(
        epochs=options.epochs,
        batch_size=options.batch_size,
        seed=options.seed,
        scaling=options.scaling,
        weight_penalty=0.0 if options.no_weight_penalty else WEIGHT_PENALTY,
        autocast=torch.bfloat16 if options.bf16 else None,
    )
    with session.script(options.backend) as ranks:
        try:
            dataset = cifar10(options.datadir, options.download)
            trainer = cifar10_trainer(dataset, config, checkpoint_dir=options.checkpoints)
        except DataError as error:
            sys.exit(f"error: {error}")
        trainer.train_and_validate_to_end(trainer.steps_per_epoch)
        accuracy = trainer.validation_metrics["accuracy"]  # collective
        if ranks.is_main:
            print(f"test on {dataset.name}: accuracy = {accuracy:.4f}")


if __name__ == "__main__":
    main()
