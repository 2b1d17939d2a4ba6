"""A softmax classifier on MNIST over several nodes, as asked for in a Q&A about CNTK.

    python -m tutorial_lib.training.softmax_ranks
    mpiexec -n 4 -hosts node1,node2 -ppn 2 python -m tutorial_lib.training.softmax_ranks
    mpirun -np 4 -host node1:2,node2:2 python -m tutorial_lib.training.softmax_ranks

(MPICH's words for 2 processes on each of 2 nodes, then Open MPI's.) Every rank trains on images
that are its own; all have the same versions, which is checked; rank 0 alone prints and saves. One
sweep of MNIST takes a few seconds and leads to about 91 % of the test images.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from tutorial_lib.data.atomic import atomic_write
from tutorial_lib.data.datasets import mnist
from tutorial_lib.data.errors import DataError
from tutorial_lib.data.minibatch_source import MinibatchSource
from tutorial_lib.distributed import session
from tutorial_lib.distributed.session import Session
from tutorial_lib.distributed.versions import check_versions
from tutorial_lib.learners.data_parallel import data_parallel_distributed_learner
from tutorial_lib.learners.schedules import learning_parameter_schedule
from tutorial_lib.learners.sgd import sgd
from tutorial_lib.models.classifiers import SoftmaxClassifier, classification_losses, correct
from tutorial_lib.training.arguments import at_least_one
from tutorial_lib.training.evaluation import evaluate
from tutorial_lib.training.progress import ProgressPrinter
from tutorial_lib.training.trainer import Trainer

LEARNING_RATE = 0.2  # per minibatch, as in CNTK's tutorial 103B
MINIBATCH_SIZE = 64


@dataclass(frozen=True)
class SoftmaxResult:
    """What training gives back.

    Attributes:
        model: The trained classifier; equal on all ranks.
        accuracy: On the whole test set; equal on all ranks.
        own_samples: How many images this rank trained on.
        distinct_samples: How many different images all ranks trained on together.
        samples: How many images all ranks trained on together.
    """

    model: SoftmaxClassifier
    accuracy: float
    own_samples: int
    distinct_samples: int
    samples: int

    @property
    def is_disjoint(self) -> bool:
        """Whether no image was trained on twice."""
        return self.distinct_samples == self.samples


def train_softmax(
    ranks: Session,
    minibatch_size: int = MINIBATCH_SIZE,
    max_samples: int = 60_000,
    seed: int = 0,
    data_dir: str | None = None,
    progress_frequency: int | None = 200,
) -> SoftmaxResult:
    """Train a softmax classifier for one sweep, with CNTK's trainer and learner.

    Args:
        ranks: The session.
        minibatch_size: Of all ranks together.
        max_samples: End after so many, at most one sweep.
        seed: Of the order.
        data_dir: Folder with MNIST; None takes the bundled files.
        progress_frequency: Minibatches between two lines on rank 0; None prints none.

    Returns:
        The classifier and the proof that each rank had images of its own.

    Raises:
        DataError: The data folder doesn't hold MNIST; the message says what to do.

    **Distributed:** collective.

    **Source:** the logistic regression of CNTK's tutorial 103B, distributed.
    """
    dataset = mnist(data_dir)
    model = SoftmaxClassifier().to(ranks.device)
    rates = learning_parameter_schedule(LEARNING_RATE, minibatch_size)
    learner = data_parallel_distributed_learner(sgd(model.parameters(), rates))
    printers = [ProgressPrinter(progress_frequency)] if progress_frequency else []
    trainer = Trainer(model, _criterion, learner, printers)
    source = MinibatchSource(dataset.train, seed, max_sweeps=1)
    times_seen = torch.zeros(len(dataset.train), dtype=torch.float64, device=ranks.device)
    own_samples = 0
    for minibatch in source.minibatches(minibatch_size, ranks.world_size, ranks.rank):
        trainer.train_minibatch(
            minibatch.features.to(ranks.device), minibatch.labels.to(ranks.device)
        )
        times_seen[minibatch.indices.to(ranks.device)] += 1
        own_samples += len(minibatch.indices)
        if trainer.total_number_of_samples_seen >= max_samples:
            break
    trainer.summarize_training_progress()
    ranks.all_reduce_sum(times_seen)
    test = dataset.test.features, dataset.test.labels
    measured = evaluate(model, _measure, test, ranks, batch_size=1000)
    return SoftmaxResult(
        model,
        measured["accuracy"],
        own_samples,
        distinct_samples=int((times_seen > 0).sum()),
        samples=int(times_seen.sum()),
    )


def _criterion(model: nn.Module, pixels: torch.Tensor, labels: torch.Tensor) -> Any:
    logits = model(pixels / 256)
    return classification_losses(logits, labels), 1 - correct(logits, labels)


def _measure(model: nn.Module, pixels: torch.Tensor, labels: torch.Tensor) -> Any:
    return {"accuracy": correct(model(pixels / 256), labels)}


def main(arguments: list[str] | None = None) -> None:
    """Run the script; see ``--help``."""
    options = _parser().parse_args(arguments)
    with session.script(options.backend) as ranks:
        versions = check_versions(ranks)
        if ranks.is_main:
            print("All ranks run " + ", ".join(f"{n} {v}" for n, v in versions.items()))
        try:
            result = train_softmax(
                ranks, options.minibatch_size, options.samples, options.seed, options.datadir
            )
        except DataError as error:
            sys.exit(f"error: {error}")
        if ranks.is_main:
            print(
                f"{ranks.world_size} ranks trained on {result.samples:,} images, "
                f"{result.distinct_samples:,} of them different; "
                f"test accuracy {result.accuracy:.4f}"
            )
            if options.save:
                with atomic_write(options.save) as file:
                    torch.save(result.model.state_dict(), file)
        ranks.barrier()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="softmax_ranks",
        description="Train a softmax classifier on MNIST, alone, under mpiexec or torchrun.",
    )
    parser.add_argument("--datadir", metavar="DIR", help="folder with MNIST")
    parser.add_argument(
        "--minibatch-size",
        type=at_least_one,
        default=MINIBATCH_SIZE,
        metavar="N",
        help="samples of all ranks together (default: %(default)s)",
    )
    parser.add_argument(
        "--samples", type=at_least_one, default=60_000, metavar="N", help="end after so many"
    )
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument("--save", metavar="FILE", help="keep the classifier (rank 0)")
    parser.add_argument("--backend", help="of torch.distributed (default: chosen by the machine)")
    return parser


if __name__ == "__main__":
    main()
