"""Small datasets in files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from tutorial_lib.data.ctf import write_ctf
from tutorial_lib.data.folder import CTF_NAMES, IDX_NAMES
from tutorial_lib.data.idx import write_idx

Arrays = tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]
SIZES = (23, 9)


@pytest.fixture(autouse=True)
def private_cache(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The folder in which the cache will be: apart from that of whoever runs the tests."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


@pytest.fixture
def random_digits() -> Callable[[int], Arrays]:
    """``random_digits(n)`` makes images (n, 28, 28), which use all pixel values, and labels."""

    def make(n: int) -> Arrays:
        random = np.random.default_rng(n)
        images = random.integers(0, 256, (n, 28, 28)).astype(np.uint8)
        images[random.random(images.shape) < 0.5] = 0
        return images, random.integers(0, 10, n).astype(np.uint8)

    return make


@pytest.fixture
def idx_folder(tmp_path: Path, random_digits: Callable[[int], Arrays]) -> Path:
    """A folder with the four IDX files, half of them compressed."""
    folder = tmp_path / "idx"
    for (images_name, labels_name), n in zip(IDX_NAMES, SIZES, strict=True):
        images, labels = random_digits(n)
        write_idx(folder / f"{images_name}.gz", images)
        write_idx(folder / labels_name, labels)
    return folder


@pytest.fixture
def ctf_folder(tmp_path: Path, random_digits: Callable[[int], Arrays]) -> Path:
    """A folder with the two text files of the same dataset."""
    folder = tmp_path / "ctf"
    for name, n in zip(CTF_NAMES, SIZES, strict=True):
        write_ctf(folder / name, *random_digits(n))
    return folder
