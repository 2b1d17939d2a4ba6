"""A folder with MNIST, or with a dataset of MNIST's shape."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tutorial_lib.data.ctf import read_ctf
from tutorial_lib.data.errors import DataError
from tutorial_lib.data.files import read_bytes
from tutorial_lib.data.idx import parse_idx, read_idx

NUM_CLASSES = 10
IMAGE_SHAPE = (28, 28)
# Of the training and the test part.
IDX_NAMES = (
    ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
)
CTF_NAMES = ("Train-28x28_cntk_text.txt", "Test-28x28_cntk_text.txt")

Part = tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]


def read_folder(
    folder: str | os.PathLike[str], remedy: str, sha256: Mapping[str, str] | None = None
) -> tuple[Part, Part]:
    """Read the training and the test part of a dataset from a folder.

    Args:
        folder: it holds the four IDX files, each with or without ``.gz``, or else the two files
            in CNTK's text format.
        remedy: what a reader whose folder lacks the files can do, a sentence without full stop.
        sha256: checksums of the uncompressed IDX files by name, to be verified; None does not.

    Returns:
        ``(training, test)``, each ``(images, labels)``: uint8 (n, 28, 28) and uint8 (n,).

    Raises:
        DataError: the folder or a file is missing, unreadable, damaged, or holds images of
            another size, labels out of range or not as many as images; the message says which,
            and what to do.
    """
    folder = Path(folder).expanduser()
    present = _names(folder, remedy)
    missing_idx = [
        name
        for pair in IDX_NAMES
        for name in pair
        if name not in present and f"{name}.gz" not in present
    ]
    missing_ctf = [name for name in CTF_NAMES if name not in present]
    if not missing_idx:
        training, test = (_read_idx_pair(folder, present, pair, sha256) for pair in IDX_NAMES)
    elif not missing_ctf:
        training, test = (_read_ctf_file(folder / name) for name in CTF_NAMES)
    elif len(missing_idx) < 4:  # a folder with some of the IDX files is meant to hold them all
        expected = "the file, with or without .gz"
        raise DataError(folder / missing_idx[0], expected, "nothing there", remedy)
    elif len(missing_ctf) < 2:
        raise DataError(folder / missing_ctf[0], "the file", "nothing there", remedy)
    else:
        idx = ", ".join(name for pair in IDX_NAMES for name in pair)
        expected = f"the files {idx} (each with or without .gz), or {' and '.join(CTF_NAMES)}"
        raise DataError(folder, expected, "none of them", remedy)
    return training, test


def _names(folder: Path, remedy: str) -> set[str]:
    try:
        with os.scandir(folder) as entries:
            return {entry.name for entry in entries}
    except FileNotFoundError:
        raise DataError(folder, "a folder with the data", "nothing there", remedy) from None
    except PermissionError as error:
        allow = f"Ask its owner for access, or allow it (chmod u+rx {folder})"
        raise DataError(folder, "a folder that you may read", "no permission", allow) from error
    except OSError as error:
        raise DataError(folder, "a folder", f"'{error.strerror}'", remedy) from error


def _read_idx_pair(
    folder: Path, present: set[str], names: tuple[str, str], sha256: Mapping[str, str] | None
) -> Part:
    images_path, labels_path = (
        folder / (name if name in present else f"{name}.gz") for name in names
    )
    arrays = []
    for path, name, ndim in ((images_path, names[0], 3), (labels_path, names[1], 1)):
        arrays.append(_read_checked(path, ndim, sha256[name]) if sha256 else read_idx(path, ndim))
    images, labels = arrays
    if images.shape[1:] != IMAGE_SHAPE:
        found = " by ".join(map(str, images.shape[1:]))
        remedy = "Use MNIST, or a dataset of its shape"
        raise DataError(images_path, "images of 28 by 28 pixels", found, remedy, "header")
    if len(images) != len(labels):
        expected = f"{len(images):,} labels, as many as images in {images_path.name}"
        remedy = "Take both files from the same copy of the dataset"
        raise DataError(labels_path, expected, f"{len(labels):,}", remedy)
    if len(images) == 0:
        remedy = "Replace the files with an intact copy"
        raise DataError(images_path, "at least one image", "none", remedy)
    if labels.max() >= NUM_CLASSES:
        place = int(np.argmax(labels >= NUM_CLASSES))
        remedy = "Replace the file with an intact copy"
        found = str(labels[place])
        raise DataError(labels_path, "labels from 0 to 9", found, remedy, f"label {place:,}")
    return images, labels


def _read_checked(path: Path, ndim: int, sha256: str) -> npt.NDArray[np.uint8]:
    content = read_bytes(path)
    if (found := hashlib.sha256(content).hexdigest()) != sha256:
        remedy = "Install the package again: its copy of the data is damaged"
        raise DataError(path, f"SHA-256 {sha256}", found, remedy)
    return parse_idx(content, path, ndim)


def _read_ctf_file(path: Path) -> Part:
    images, labels = read_ctf(path)
    return images.reshape(-1, *IMAGE_SHAPE), labels
