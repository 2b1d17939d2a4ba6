"""Each chapter's checks tell the mistakes they were written for."""

import pytest
import torch

from tutorial_lib.exercises.verdict import verdict


def remainder_to_the_last(size, world_size, rank):
    share = size // world_size
    return rank * share, size if rank == world_size - 1 else (rank + 1) * share


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
    ],
)
def test_mistake_is_told(name, answer, told):
    found = verdict(name, answer)
    assert found.status == "NOT YET"
    assert told in found.detail
