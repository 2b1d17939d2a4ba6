"""Checks of notebook 12: CIFAR-10 with augmentation."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import torch

from tutorial_lib.exercises.cases import NotAttempted, as_numbers, call, expect, require
from tutorial_lib.exercises.verdict import exercise

PATIENCE_S = 5.0


@exercise("12.1")
def own_share(answer: Any) -> None:
    """The answer augments this rank's pictures, and only these."""
    images = torch.arange(10.0).reshape(10, 1)
    random = torch.linspace(-1, 0.8, 10).reshape(10, 1)
    for world_size in (1, 2, 4):
        parts = []
        for rank in range(world_size):
            worked_on: list[int] = []

            def augment(x: Any, r: Any, counts: list[int] = worked_on) -> Any:
                counts.append(len(x))
                return x * 10 + r

            part = call(answer, images.clone(), random.clone(), world_size, rank, augment)
            case = f"10 pictures, rank {rank} of {world_size}"
            require(
                sum(worked_on) == len(part),
                f"{case}: {sum(worked_on)} pictures were augmented and {len(part)} returned",
            )
            parts.append(as_numbers(part))
        case = f"10 pictures, {world_size} ranks, their parts in rank order"
        expect(case, np.concatenate([p for p in parts if p is not None]), images * 10 + random)


@exercise("12.2")
def prefetched(answer: Any) -> None:
    """The answer prepares minibatches in a thread while the current one is used."""
    prepared: list[int] = []
    lock = threading.Lock()

    def prepare(number: int) -> int:
        with lock:
            prepared.append(number)
        return 10 * number

    stream = call(answer, prepare, 8, 2)
    iterator = iter(stream)
    first = next(iterator, None)
    if first is ...:
        raise NotAttempted
    expect("the first of 8 minibatches", first, 0)
    deadline = time.monotonic() + PATIENCE_S
    while len(prepared) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    require(
        len(prepared) >= 3,
        f"while minibatch 0 was used, {len(prepared) - 1} others were prepared, expected 2",
    )
    time.sleep(0.05)
    require(len(prepared) <= 4, f"{len(prepared) - 1} were prepared ahead; 2 were asked for")
    expect("the other minibatches", list(iterator), [10 * number for number in range(1, 8)])
    expect("numbers prepared, in order", prepared, list(range(8)))


@exercise("12.3")
def step_counter(answer: Any) -> None:
    """The answer's step number can be read without anything happening."""
    batches = [30, 20, 10]
    trainer = call(answer, list(batches))
    first = call(trainer.train_on_batch)
    expect("the first train_on_batch()", first, 30)
    for _ in range(3):
        expect("global_step after one step, read again and again", trainer.global_step, 1)
    expect("the second train_on_batch()", call(trainer.train_on_batch), 20)
    expect("global_step after two steps", trainer.global_step, 2)
    expect("the third train_on_batch()", call(trainer.train_on_batch), 10)
