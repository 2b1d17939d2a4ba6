"""Datasets by name: images and labels as tensors."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from tutorial_lib.data.errors import DataError
from tutorial_lib.data.files import read_bytes
from tutorial_lib.data.idx import parse_idx

BUNDLED_MNIST = Path(__file__).parent / "mnist"
# SHA-256 of the uncompressed files.
MNIST_SHA256 = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
DIGITS = ("0", "1", "2", "3", "4", "5", "6", "7", "8", "9")


@dataclass(frozen=True)
class Split:
    """The training or the test part of a dataset.

    Attributes:
        images: uint8 (n, 28, 28), 0 (background) to 255.
        labels: int64 (n,), places in ``Dataset.class_names``.
    """

    images: torch.Tensor
    labels: torch.Tensor

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.images)

    @property
    def features(self) -> torch.Tensor:
        """The images as rows, uint8 (n, 784): a view, not a copy."""
        return self.images.flatten(start_dim=1)


@dataclass(frozen=True)
class Dataset:
    """A dataset in memory: its name, its two splits, and what the labels mean."""

    name: str
    train: Split
    test: Split
    class_names: tuple[str, ...]


def mnist(data_dir: str | os.PathLike[str] | None = None) -> Dataset:
    """Return MNIST: 60,000 training and 10,000 test digits of 28 by 28 pixels.

    Args:
        data_dir: a folder with the four IDX files (each with or without ``.gz``); None takes the
            copy inside this package, whose SHA-256 sums are verified.

    Returns:
        The dataset, in the files' order.

    Raises:
        DataError: a file is missing, unreadable, damaged or not what its name says; the message
            tells what to do.

    **Distributed:** not collective; every rank reads for itself. Equal on all ranks.

    **Source:** notebook 103A of CNTK's tutorials; the data is Yann LeCun's and Corinna Cortes's.
    """
    folder = BUNDLED_MNIST if data_dir is None else Path(data_dir)
    sums = MNIST_SHA256 if data_dir is None else None
    return Dataset(
        "MNIST", _idx_split(folder, "train", sums), _idx_split(folder, "t10k", sums), DIGITS
    )


def _idx_split(folder: Path, prefix: str, sums: dict[str, str] | None) -> Split:
    images = _idx_file(folder, f"{prefix}-images-idx3-ubyte", 3, sums)
    labels = _idx_file(folder, f"{prefix}-labels-idx1-ubyte", 1, sums)
    return Split(torch.from_numpy(images), torch.from_numpy(labels).long())


def _idx_file(
    folder: Path, name: str, ndim: int, sums: dict[str, str] | None
) -> npt.NDArray[np.uint8]:
    path = folder / name if (folder / name).exists() else folder / f"{name}.gz"
    content = read_bytes(path)
    if sums is not None and (found := hashlib.sha256(content).hexdigest()) != sums[name]:
        raise DataError(
            path, f"SHA-256 {sums[name]}", found, "Reinstall the package: its data is damaged"
        )
    return parse_idx(content, path, ndim)
