"""Checks of notebook 01: the MNIST data."""

from __future__ import annotations

import struct
from typing import Any

from tutorial_lib.data.partition import partition_bounds
from tutorial_lib.exercises.cases import call, expect
from tutorial_lib.exercises.verdict import exercise

HEADERS = {
    "train-images": (60000, 28, 28),
    "train-labels": (60000,),
    "t10k-images": (10000, 28, 28),
    "a file of four dimensions": (2, 3, 5, 7),
}


@exercise("01.1")
def idx_shape(answer: Any) -> None:
    """The answer maps an IDX file's first bytes to the shape of its array."""
    for name, shape in HEADERS.items():
        header = struct.pack(f">BBBB{len(shape)}I", 0, 0, 8, len(shape), *shape)
        found = call(answer, header + bytes(range(64)))
        expect(f"the header of {name}, {header.hex(' ', 4)}", found, shape)


@exercise("01.2")
def bounds(answer: Any) -> None:
    """The answer maps (size, ranks, rank) to the slice of a minibatch that the rank takes."""
    for size in (8, 10, 1024, 3, 1, 0):
        for world_size in range(1, 6):
            for rank in range(world_size):
                expect(
                    f"{size} samples over {world_size} ranks, rank {rank}",
                    call(answer, size, world_size, rank),
                    partition_bounds(size, world_size, rank),
                )
