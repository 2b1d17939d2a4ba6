"""CIFAR-10's two layouts, binary and python, read without running anything they hold."""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tutorial_lib.data.errors import DataError
from tutorial_lib.data.files import read_bytes

SHAPE = (3, 32, 32)
NUM_PIXELS = 3072
RECORD_BYTES = 1 + NUM_PIXELS
NUM_CLASSES = 10
REPLACE = "Replace it with an intact copy"

Part = tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]


def read_binary(path: str | os.PathLike[str]) -> Part:
    """Read a file of the binary layout: per image a label byte, then red, green, blue by rows.

    Args:
        path: the file, gzip-compressed or not.

    Returns:
        ``(images, labels)``: uint8 (n, 3, 32, 32) and uint8 (n,), 0 to 9.

    Raises:
        DataError: the file is missing, unreadable, cut short, or a label is over 9; replace it.
    """
    content = read_bytes(path)
    count, rest = divmod(len(content), RECORD_BYTES)
    if rest:
        expected = f"whole records of {RECORD_BYTES:,} bytes"
        found = f"{len(content):,} bytes, which are {count:,} records and {rest:,} bytes"
        raise DataError(path, expected, found, REPLACE)
    records = np.frombuffer(content, np.uint8).reshape(count, RECORD_BYTES)
    return _checked(path, records[:, 1:], records[:, 0])


def read_python(path: str | os.PathLike[str]) -> Part:
    """Read a file of the python layout, a pickle, without letting it call anything.

    Args:
        path: the file.

    Returns:
        ``(images, labels)``: uint8 (n, 3, 32, 32) and uint8 (n,), 0 to 9.

    Raises:
        DataError: the file is missing, unreadable or no such pickle, asks for anything but
            arrays, or holds arrays of another size; don't use it, or replace it.
    """
    expected = "a pickled dict with b'data', uint8 (n, 3072), and b'labels'"
    content = read_bytes(path)
    try:
        batch = _ArraysOnly(io.BytesIO(content), encoding="bytes").load()
    except _ForbiddenError as error:
        remedy = "CIFAR-10's files need no such thing: don't use this one"
        raise DataError(path, expected, f"a pickle that wants {error}", remedy) from None
    except Exception as error:  # a damaged pickle can raise anything at all
        found = f"no whole pickle ({type(error).__name__}: {error})"
        raise DataError(path, expected, found, REPLACE) from error
    if not isinstance(batch, dict) or not {b"data", b"labels"} <= batch.keys():
        raise DataError(path, expected, f"a {type(batch).__name__} without these", REPLACE)
    pixels, labels = batch[b"data"], batch[b"labels"]
    if (
        not isinstance(pixels, np.ndarray)
        or pixels.dtype != np.uint8
        or pixels.shape != (len(labels), NUM_PIXELS)
        or not all(type(label) is int for label in labels)
    ):
        found = f"{getattr(pixels, 'shape', 'no array')} with {len(labels):,} labels"
        raise DataError(path, expected, found, REPLACE)
    return _checked(path, pixels, np.array([min(label, 255) for label in labels], np.uint8))


class _ForbiddenError(Exception):
    """A pickle wants something that arrays don't need."""


def _reconstruct(kind: type, shape: tuple[int, ...], code: bytes) -> npt.NDArray[Any]:
    """What NumPy pickles an array's birth as, for plain arrays alone."""
    return np.ndarray(shape, np.dtype(code.decode("ascii")))


def _encode(text: str, encoding: str) -> bytes:
    """How Python 3 writes bytes in an old pickle."""
    return text.encode("latin1")


_HARMLESS: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _encode,
}


class _ArraysOnly(pickle.Unpickler):
    """Makes numbers, texts, lists, dicts and arrays; refuses every other name a pickle wants."""

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _HARMLESS[module, name]
        except KeyError:
            raise _ForbiddenError(f"{module}.{name}") from None


def _checked(
    path: str | os.PathLike[str], pixels: npt.NDArray[np.uint8], labels: npt.NDArray[np.uint8]
) -> Part:
    if not len(labels):
        raise DataError(path, "at least one image", "none", REPLACE)
    if labels.max() >= NUM_CLASSES:
        place = int(np.argmax(labels >= NUM_CLASSES))
        found = str(labels[place])
        raise DataError(Path(path), "labels from 0 to 9", found, REPLACE, f"image {place:,}")
    return np.ascontiguousarray(pixels).reshape(-1, *SHAPE), np.ascontiguousarray(labels)
