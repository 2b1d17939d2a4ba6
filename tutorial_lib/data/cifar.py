"""CIFAR-10: a folder's, a download, or the small sample inside this package."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import filelock
import numpy as np
import torch
from PIL import Image

from tutorial_lib.data.atomic import atomic_write
from tutorial_lib.data.cache import read_columns
from tutorial_lib.data.cifar_files import Part, read_binary, read_python
from tutorial_lib.data.datasets import Dataset, Split
from tutorial_lib.data.download import LOCK_TIMEOUT_S, cache_dir, fetch
from tutorial_lib.data.errors import DataError
from tutorial_lib.data.files import read_bytes

CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)
ARCHIVE = "cifar-10-binary.tar.gz"  # MD5 c32a1d4ab5d03f1284b67883e8d87530, says its home page
ARCHIVE_SHA256 = {ARCHIVE: "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"}
MIRRORS = (
    "https://www.cs.toronto.edu/~kriz",
    "https://cave.cs.toronto.edu/kriz",
    "https://storage.googleapis.com/s4tf-hosted-binaries/datasets/CIFAR10",
)
BINARY_FOLDER, PYTHON_FOLDER = "cifar-10-batches-bin", "cifar-10-batches-py"
BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))
TEST_BATCH = "test_batch"

SAMPLE = Path(__file__).parent / "cifar10" / "sample.zip"
SAMPLE_SHA256 = "c6ef0f64712ddfe09575f85e998bef0fffcc6756c67c57359049097c92206e67"
SAMPLE_NAME = "CIFAR-10 sample"


def cifar10(data_dir: str | os.PathLike[str] | None = None, download: bool = False) -> Dataset:
    """Return CIFAR-10: 50,000 training and 10,000 test pictures, 32 by 32 pixels in colour.

    Args:
        data_dir: a folder with the binary or the python layout, or with a folder of that name
            (cifar-10-batches-bin, cifar-10-batches-py) in it; None takes the download.
        download: without ``data_dir``, fetch the archive (170 MB) into the cache if it is not
            there; False takes the sample of ``cifar10_sample``.

    Returns:
        The dataset, in the files' order; images are uint8 (n, 3, 32, 32). Its name says whether
        it is the sample.

    Raises:
        DataError: a file is missing, unreadable, damaged or not what its name says, or cannot be
            downloaded; the message tells what to do.

    **Distributed:** not collective, and safe to call on all ranks at once: one downloads, the
    others wait. Equal on all ranks.

    **Source:** Alex Krizhevsky, https://www.cs.toronto.edu/~kriz/cifar.html.
    """
    if data_dir is None and not download:
        return cifar10_sample()
    folder = _download() if data_dir is None else Path(data_dir).expanduser()
    for place in (folder, folder / BINARY_FOLDER, folder / PYTHON_FOLDER):
        for suffix, read in ((".bin", read_binary), ("", read_python)):
            names = [f"{name}{suffix}" for name in (*BATCHES, TEST_BATCH)]
            present = [name for name in names if (place / name).exists()]
            if present:
                missing = [name for name in names if name not in present]
                if missing:
                    remedy = "Put all six files there"
                    raise DataError(place / missing[0], "the file", "nothing there", remedy)
                *training, test = (place / name for name in names)
                return _dataset("CIFAR-10", _read(training, read), _read([test], read))
    expected = f"{BATCHES[0]}.bin to {BATCHES[-1]}.bin and {TEST_BATCH}.bin, or these without .bin"
    remedy = f"Unpack {MIRRORS[0]}/{ARCHIVE} there, or have it downloaded (download=True)"
    raise DataError(folder, expected, "none of them", remedy)


def cifar10_sample() -> Dataset:
    """Return the part of CIFAR-10 inside this package: 2,000 training and 500 test pictures.

    As many of each class, from the original's training and test part. It is for trying things
    out where the dataset is not at hand; accuracies from it are not CIFAR-10's.

    Returns:
        The sample, named "CIFAR-10 sample". The pictures are JPEGs, so close to the originals.

    Raises:
        DataError: the package's file is missing or damaged; install the package again.
    """
    content = read_bytes(SAMPLE)
    remedy = "Install the package again"
    if (found := hashlib.sha256(content).hexdigest()) != SAMPLE_SHA256:
        raise DataError(SAMPLE, f"SHA-256 {SAMPLE_SHA256}", found, remedy)
    parts: dict[str, list[tuple[np.ndarray[tuple[int, ...], np.dtype[np.uint8]], int]]] = {}
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for entry in archive.infolist():
            part, _, name = entry.filename.removesuffix(".jpg").partition("/")
            picture = np.asarray(Image.open(io.BytesIO(archive.read(entry))).convert("RGB"))
            label = CLASSES.index(name.split("-")[1])
            parts.setdefault(part, []).append((picture.transpose(2, 0, 1), label))
    training, test = (
        (np.stack([p for p, _ in parts[part]]), np.array([k for _, k in parts[part]], np.uint8))
        for part in ("train", "test")
    )
    return _dataset(SAMPLE_NAME, training, test)


def _download() -> Path:
    """Fetch the archive into the cache and unpack it there, once for all; return its folder."""
    folder = cache_dir() / "cifar-10"
    unpacked = folder / BINARY_FOLDER
    names = [f"{name}.bin" for name in (*BATCHES, TEST_BATCH)]
    if all((unpacked / name).exists() for name in names):
        return unpacked
    fetch(ARCHIVE_SHA256, MIRRORS, folder)
    lock = filelock.FileLock(folder / ".unpack.lock", timeout=LOCK_TIMEOUT_S)
    with lock, tarfile.open(folder / ARCHIVE) as archive:
        for name in names:
            member = archive.extractfile(f"{BINARY_FOLDER}/{name}")
            assert member is not None  # the archive's checksum is right
            with atomic_write(unpacked / name) as file:
                file.write(member.read())
    return unpacked


def _read(paths: list[Path], read: Callable[[Path], Part]) -> Part:
    images, labels = read_columns(paths, lambda: map(read, paths))
    return images, labels


def _dataset(name: str, training: Part, test: Part) -> Dataset:
    return Dataset(name, _split(training), _split(test), CLASSES)


def _split(part: Part) -> Split:
    images, labels = part
    return Split(torch.from_numpy(images), torch.from_numpy(labels).long())
