from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from tutorial_lib.data.columns import Columns, join_columns, key_of, map_columns, write_columns


def blocks(rows: int, seed: int = 0) -> list[Columns]:
    random = np.random.default_rng(seed)
    images = random.integers(0, 256, (rows, 5), dtype=np.uint8)
    weights = random.random((rows, 2, 3), dtype=np.float32)
    cuts = [0, *sorted(random.integers(0, rows + 1, 3)), rows]
    return [(images[a:b], np.arange(rows)[a:b], weights[a:b]) for a, b in itertools.pairwise(cuts)]


@pytest.mark.parametrize("rows", [1, 7, 1000])
def test_what_is_written_is_mapped(tmp_path: Path, rows: int) -> None:
    path = tmp_path / "file"
    with path.open("wb") as file:
        write_columns(file, iter(blocks(rows)), "key")
    mapped = map_columns(path, "key")
    assert mapped is not None
    assert key_of(path) == "key"
    for ours, expected in zip(mapped, join_columns(blocks(rows)), strict=True):
        assert (ours.dtype, ours.shape) == (expected.dtype, expected.shape)
        assert np.array_equal(ours, expected)
        assert ours.ctypes.data % ours.itemsize == 0


def test_changes_stay_in_memory(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        write_columns(file, blocks(3), "key")
    before = (tmp_path / "file").read_bytes()
    for column in map_columns(tmp_path / "file", "key") or ():
        column[:] = 0
    assert (tmp_path / "file").read_bytes() == before


def test_nothing_but_a_whole_file_of_the_key_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert map_columns(path, "key") is None
    with path.open("wb") as file:
        write_columns(file, blocks(2), "key")
    content = path.read_bytes()
    assert map_columns(path, "another key") is None
    for length in range(len(content)):
        path.write_bytes(content[:length])
        assert map_columns(path, "key") is None, length
        assert key_of(path) is None
    path.write_bytes(content.replace(b'"key"', b'"key'))
    assert map_columns(path, "key") is None
    assert key_of(path) is None
