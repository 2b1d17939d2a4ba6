"""Each chapter's checks tell the mistakes they were written for."""

import statistics

import pytest
import torch

from tutorial_lib.exercises.verdict import verdict


def remainder_to_the_last(size, world_size, rank):
    share = size // world_size
    return rank * share, size if rank == world_size - 1 else (rank + 1) * share


def share(n, world_size, rank):
    return n // world_size + (rank < n % world_size)


def scale_in_place(optimizer_args, world_size):
    optimizer_args["lr"] *= world_size
    return optimizer_args


class Eager:
    """Counts a step when it is looked at."""

    def __init__(self, batches):
        self.batches, self.steps = iter(batches), 0

    def train_on_batch(self):
        self.steps += 1
        return next(self.batches)

    @property
    def global_step(self):
        self.steps += self.steps > 0 and hasattr(self, "seen")
        self.seen = True
        return self.steps


@pytest.mark.parametrize(
    ("name", "answer", "told"),
    [
        ("00.1", lambda n: n * (n + 1) // 2, "1 ranks, numbered 0 to 0: expected 0, found 1"),
        ("00.2", {0: 1225, 1: 3725}, "total on rank 0: expected 4950, found 1225. These are the"),
        ("00.2", {0: 4950, 1: 7}, "total on rank 1: expected 4950, found 7"),
        ("00.2", {}, "ranks.pull('total')"),
        ("01.1", lambda header: (28, 28), "the header of train-images, 00000803 0000ea60"),
        ("01.2", remainder_to_the_last, "8 samples over 3 ranks, rank 0: value 1: expected 3"),
        ("02.1", lambda lr, momentum, n: (lr, momentum), "value 0: expected 0.0512"),
        ("02.2", lambda start, stop, steps: start, "2 steps, shape"),
        (
            "02.2",
            lambda start, stop, steps: start + torch.zeros(steps, 1),
            "2 steps, row 1: at [0]",
        ),
        ("11.1", lambda n, size: n // size, "inf // n is nan"),
        (
            "11.2",
            lambda ranks: statistics.fmean(statistics.fmean(m for m, _ in r) for r in ranks if r),
            "This is the mean of the means",
        ),
        (
            "11.3",
            lambda n, size, rank, batch: [batch] * (share(n, size, rank) // batch),
            "23 samples, 2 ranks with 4 each: the ranks take [3, 2] steps, and one would wait",
        ),
        ("11.4", scale_in_place, "the caller's dictionary was changed: {'lr': 1.0"),
        (
            "12.1",
            lambda x, r, size, rank, augment: augment(x, r)[rank * 5 : rank * 5 + 5],
            "10 pictures, rank 0 of 1: 10 pictures were augmented and 5 returned",
        ),
        (
            "12.2",
            lambda prepare, count, ahead: map(prepare, range(count)),
            "0 others were prepared",
        ),
        ("12.3", Eager, "global_step after one step, read again and again: expected 1, found 2"),
    ],
)
def test_mistake_is_told(name, answer, told):
    found = verdict(name, answer)
    assert found.status == "NOT YET"
    assert told in found.detail
