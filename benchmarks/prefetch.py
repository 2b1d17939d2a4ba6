"""What minibatches made ahead, in a thread, save: in the GAN's step, and where they are augmented.

python benchmarks/prefetch.py               alone on one core of all, and on two ranks
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import torch
from measuring import print_rates, side_by_side
from measuring.ranks import run_under_mpiexec
from torch import nn

from tutorial_lib.data.augment import augment
from tutorial_lib.data.cifar import cifar10_sample
from tutorial_lib.data.pipeline import Pipeline
from tutorial_lib.data.prefetch import PrefetchedSource
from tutorial_lib.distributed import session
from tutorial_lib.models.classifiers import CifarCnn, classification_losses
from tutorial_lib.training.gan import BasicGan, GanConfig

ROUNDS = 5
GAN_STEPS, CIFAR_STEPS = 20, 2
MADE_ONLY_STEPS = 60  # many more than are made ahead, or only those would be timed
CIFAR_BATCH = 128  # of each rank


def measure() -> None:
    """Measure on this rank, print on rank 0. Collective."""
    torch.set_num_threads(1)
    with session.script() as ranks:
        for title, steps, alternatives in (
            ("the GAN of chapter 04", GAN_STEPS, gans()),
            ("a network for CIFAR-10, augmented", CIFAR_STEPS, classifiers(ranks)),
            ("the same without its network", MADE_ONLY_STEPS, classifiers(ranks, is_trained=False)),
        ):
            times = side_by_side(alternatives, ROUNDS, repeats=steps, before=ranks.barrier)
            if ranks.is_main:
                print(f"## {ranks.world_size} x 1 thread: {title}")
                print_rates(times, 1, "steps")


def gans() -> dict[str, Callable[[], object]]:
    plain, ahead = (BasicGan(GanConfig(), is_verbose=False) for _ in range(2))
    ahead.source = PrefetchedSource(ahead.source)
    ahead.noise = PrefetchedSource(ahead.noise)
    return {"made when needed": plain.step, "made ahead": ahead.step}


def classifiers(ranks: session.Session, is_trained: bool = True) -> dict[str, Callable[[], object]]:
    train = cifar10_sample().train
    partition = (ranks.world_size, ranks.rank)

    def step_of(prefetch_size: int) -> Callable[[], object]:
        network = CifarCnn()
        size = CIFAR_BATCH * ranks.world_size
        pipeline = Pipeline(train, size, partition, 0, augment, prefetch_size)

        def step() -> None:
            minibatch = pipeline.next()
            if is_trained:
                train_on(network, minibatch.x, minibatch.y)

        return step

    return {"made when needed": step_of(0), "made ahead": step_of(2)}


def train_on(network: nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    classification_losses(network(x), y).mean().backward()


def main() -> None:
    if "measure" in sys.argv:
        measure()
        return
    os.environ["OMP_NUM_THREADS"] = "1"
    for ranks in (1, 2):
        run_under_mpiexec(__file__, ranks, "measure")


if __name__ == "__main__":
    main()
