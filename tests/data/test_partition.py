from __future__ import annotations

from itertools import pairwise

import pytest

from tutorial_lib.data.partition import partition_bounds


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 5, 7, 16, 1000])
@pytest.mark.parametrize("size", [0, 1, 2, 3, 64, 1000, 1024])
def test_parts_tile_the_minibatch_and_differ_by_at_most_one(size: int, world_size: int) -> None:
    parts = [partition_bounds(size, world_size, rank) for rank in range(world_size)]
    assert parts[0][0] == 0
    assert parts[-1][1] == size
    assert all(left[1] == right[0] for left, right in pairwise(parts))
    for rank, (start, stop) in enumerate(parts):
        assert stop - start == size // world_size + (rank < size % world_size)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1, 1, 0), "size=-1"),
        ((8, 0, 0), "1 or more, got 0"),
        ((8, 2, 2), "0 to 1, got 2"),
        ((8, 2, -1), "0 to 1, got -1"),
    ],
)
def test_arguments_out_of_range_are_named(arguments: tuple[int, int, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        partition_bounds(*arguments)
