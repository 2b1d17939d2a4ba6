"""Datasets by name: images and labels as tensors."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import torch

from tutorial_lib.data.download import by_hand, cache_dir, fetch
from tutorial_lib.data.folder import Part, read_folder

BUNDLED_MNIST = Path(__file__).parent / "mnist"
# SHA-256 of the uncompressed files.
MNIST_SHA256 = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
FASHION_MIRRORS = (
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
    "https://storage.googleapis.com/tensorflow/tf-keras-datasets",
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
)
# SHA-256 of the compressed files, as the mirrors have them.
FASHION_SHA256 = {
    "train-images-idx3-ubyte.gz": (
        "08dc20ab1689590a0bcd66e874647b6ee8464e2d501b5a3f1f78831db19a3fdc"
    ),
    "train-labels-idx1-ubyte.gz": (
        "b0197879cbda89f3dc7b894f9fd52b858e68ea4182b6947c9d8c2b67e5f18dcc"
    ),
    "t10k-images-idx3-ubyte.gz": (
        "78dcbbfb5a27efaf1b6c1d616caca68560be8766c5bffcb2791df9273a534229"
    ),
    "t10k-labels-idx1-ubyte.gz": (
        "42bd18137a62d5998cdeae52bf3a0676ac6b706f5cf8439b47bb5b151ae3dccf"
    ),
}
CLOTHES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
DIGITS = ("0", "1", "2", "3", "4", "5", "6", "7", "8", "9")


@dataclass(frozen=True)
class Split:
    """The training or the test part of a dataset.

    Attributes:
        images: uint8, 0 to 255: (n, 28, 28) with a background of 0, or (n, 3, 32, 32) in colour.
        labels: int64 (n,), places in ``Dataset.class_names``.
    """

    images: torch.Tensor
    labels: torch.Tensor

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.images)

    @property
    def features(self) -> torch.Tensor:
        """The images as rows, uint8 (n, 784 or 3072): a view, not a copy."""
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
        data_dir: a folder with the four IDX files (each with or without ``.gz``) or with CNTK's
            two text files; None takes the copy inside this package and verifies its checksums.

    Returns:
        The dataset, in the files' order.

    Raises:
        DataError: the folder or a file is missing, unreadable, damaged or not what its name says;
            the message tells what to do.

    **Distributed:** not collective; every rank reads for itself. Equal on all ranks.

    **Source:** notebook 103A of CNTK's tutorials; the data is Yann LeCun's and Corinna Cortes's.
    """
    if data_dir is None:
        parts = read_folder(BUNDLED_MNIST, "Install the package again", MNIST_SHA256)
    else:
        # The first half is CNTK's own message, which people and scripts know.
        remedy = (
            "Please generate the data by completing CNTK 103 Part A, or by "
            f"`gan-tutorial data install --format ctf --out {os.fspath(data_dir)}`"
        )
        parts = read_folder(data_dir, remedy)
    return _dataset("MNIST", parts, DIGITS)


def fashion_mnist(data_dir: str | os.PathLike[str] | None = None, download: bool = True) -> Dataset:
    """Return Fashion-MNIST: 60,000 training and 10,000 test pictures of clothes, as MNIST's.

    Args:
        data_dir: a folder with the files, as for ``mnist``; None takes them from the cache
            (``cache_dir() / "fashion-mnist"``).
        download: fetch into the cache (30 MB) what is missing there.

    Returns:
        The dataset, in the files' order.

    Raises:
        DataError: as for ``mnist``; or the files are missing and cannot be downloaded, and the
            message tells how to get them by hand.

    **Distributed:** not collective, and safe to call on all ranks at once: one downloads, the
    others wait. Equal on all ranks.

    **Source:** https://github.com/zalandoresearch/fashion-mnist, MIT licence, Zalando SE.
    """
    folder = cache_dir() / "fashion-mnist" if data_dir is None else Path(data_dir)
    if data_dir is None and download:
        fetch(FASHION_SHA256, FASHION_MIRRORS, folder)
    parts = read_folder(folder, by_hand(FASHION_SHA256, FASHION_MIRRORS, folder))
    return _dataset("Fashion-MNIST", parts, CLOTHES)


def _dataset(name: str, parts: tuple[Part, Part], class_names: tuple[str, ...]) -> Dataset:
    train, test = (
        Split(torch.from_numpy(images), torch.from_numpy(labels).long()) for images, labels in parts
    )
    return Dataset(name, train, test, class_names)
