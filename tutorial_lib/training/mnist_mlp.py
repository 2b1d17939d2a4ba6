"""TensorLayer's MNIST example: the same network on one rank or on many.

    python -m tutorial_lib.training.mnist_mlp                      one process
    mpiexec -n 4 python -m tutorial_lib.training.mnist_mlp         four ranks under MPI
    torchrun --nproc-per-node 4 -m tutorial_lib.training.mnist_mlp the same without MPI

Each rank takes 500 images a step: 100, 50 or 25 steps an epoch on 1, 2 or 4 ranks. An epoch on
one rank takes about 5 s of one core; docs/accuracy.md says what it leads to.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from tutorial_lib.data.datasets import mnist
from tutorial_lib.data.errors import DataError
from tutorial_lib.distributed import session
from tutorial_lib.learners.scaling import Scaling
from tutorial_lib.models.classifiers import (
    Initialization,
    MnistMlp,
    classification_losses,
    correct,
)
from tutorial_lib.training.arguments import at_least_one, classifier_parser
from tutorial_lib.training.evaluation import Measured
from tutorial_lib.training.fit import Trainer

NUM_VALIDATION = 10_000  # the last of MNIST's 60,000 training images
LEARNING_RATE = 1e-3


@dataclass(frozen=True)
class MnistConfig:
    """What to train.

    Attributes:
        epochs: Times through the 50,000 training images.
        batch_size: Of each rank.
        seed: Of weights, order and dropout.
        data_dir: Folder with MNIST; None takes the bundled files.
        initialization: See ``models.classifiers.MnistMlp``.
        scaling: Of the learning rate; see ``learners.scaling.scaling_factor``.
        warmup_steps: See ``training.fit.Trainer``.
        validate_every: Steps between two validations.
        num_training: Training images to take; fewer for a quick try.
        log_every: Steps between two lines; 0 for none.
    """

    epochs: int = 1
    batch_size: int = 500
    seed: int = 0
    data_dir: str | None = None
    initialization: Initialization = "tensorlayer"
    scaling: Scaling = True
    warmup_steps: int | None = None
    validate_every: int = 50
    num_training: int = 50_000
    log_every: int = 10


def build_training(network: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Any:
    """Loss per sample, and the accuracy to log. ``x`` is uint8, (n, 28, 28)."""
    logits = network(x / 256)
    return classification_losses(logits, y), {"accuracy": correct(logits, y)}


def build_validation(network: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Measured:
    """Loss and accuracy per sample."""
    losses, logs = build_training(network, x, y)
    return {"loss": losses, **logs}


def mnist_trainer(config: MnistConfig | None = None, **options: Any) -> Trainer:
    """Make the trainer of this example.

    Args:
        config: What to train; None for TensorLayer's values.
        **options: Further keywords of ``Trainer``.

    Returns:
        The trainer. ``trainer.evaluate(mnist().test, build_validation)`` tests its network.

    **Distributed:** collective.

    **Source:** TensorLayer 1.11, ``tutorial_mnist_distributed_trainer.py``.
    """
    config = config or MnistConfig()
    train = mnist(config.data_dir).train
    last = len(train) - NUM_VALIDATION
    first = min(config.num_training, last)
    return Trainer(
        MnistMlp(config.initialization, config.seed),
        (train.images[:first], train.labels[:first]),
        build_training,
        torch.optim.Adam,
        {"lr": LEARNING_RATE},
        batch_size=config.batch_size,
        prefetch_size=2,
        scaling_learning_rate=config.scaling,
        log_step_size=config.log_every,
        validation_dataset=(train.images[last:], train.labels[last:]),
        build_validation_func=build_validation,
        epochs=config.epochs,
        warmup_steps=config.warmup_steps,
        seed=config.seed,
        **options,
    )


def main(arguments: list[str] | None = None) -> None:
    """Run the script; see ``--help``."""
    parser = classifier_parser("mnist_mlp", "Train TensorLayer's MNIST example.", MnistConfig())
    parser.add_argument(
        "--initialization", choices=["tensorlayer", "pytorch"], default="tensorlayer"
    )
    parser.add_argument("--training-images", type=at_least_one, default=50_000, metavar="N")
    options: argparse.Namespace = parser.parse_args(arguments)
    config = MnistConfig(
        epochs=options.epochs,
        batch_size=options.batch_size,
        seed=options.seed,
        data_dir=options.datadir,
        initialization=options.initialization,
        scaling=options.scaling,
        num_training=options.training_images,
    )
    with session.script(options.backend) as ranks:
        try:
            trainer = mnist_trainer(config, checkpoint_dir=options.checkpoints)
            test = mnist(config.data_dir).test
        except DataError as error:
            sys.exit(f"error: {error}")
        trainer.train_and_validate_to_end(config.validate_every)
        tested = trainer.evaluate(test, build_validation)
        if ranks.is_main:
            print(f"test: loss = {tested['loss']:.6f}, accuracy = {tested['accuracy']:.4f}")


if __name__ == "__main__":
    main()
