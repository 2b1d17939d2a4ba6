"""The IDX format, in which MNIST is published."""

from __future__ import annotations

import gzip
import math
import os

import numpy as np
import numpy.typing as npt

from tutorial_lib.data.atomic import atomic_write
from tutorial_lib.data.cache import read_content
from tutorial_lib.data.errors import DataError

UINT8 = 0x08
REPLACE = "Replace it with an intact copy"


def read_idx(path: str | os.PathLike[str], ndim: int | None = None) -> npt.NDArray[np.uint8]:
    """Read an IDX file of unsigned bytes, gzip-compressed or not.

    Args:
        path: the file; gzip is recognised by its content, not its name.
        ndim: the number of dimensions it must have: 3 for images, 1 for labels. None takes any.

    Returns:
        uint8, with the header's dimensions: (n, rows, columns) for images, (n,) for labels. A large
        file is mapped into memory, which the ranks of a host share; a large compressed one is
        decompressed into the cache, once for all. The array may be written to, and no file
        changes.

    Raises:
        DataError: the file is missing, unreadable, empty, cut short or of another format; put an
            intact copy in its place.

    **Source:** http://yann.lecun.com/exdb/mnist (the format is described at the foot of the page).
    """
    return parse_idx(read_content(path), path, ndim)


def parse_idx(
    content: bytes | npt.NDArray[np.uint8], path: str | os.PathLike[str], ndim: int | None = None
) -> npt.NDArray[np.uint8]:
    """Turn the bytes of an IDX file into an array; see ``read_idx``, whose errors these are.

    Args:
        content: header and data, uncompressed, as bytes or uint8 (bytes,).
        path: named in errors.
        ndim: the number of dimensions it must have, or None.

    Returns:
        A writable uint8 array: a view of ``content``, or a copy if that is not writable.

    Raises:
        DataError: a wrong magic number, wrong dimensions or a wrong length; replace the file.
    """
    wanted = "" if ndim is None else f", magic number {UINT8 << 8 | ndim}"
    expected = f"an IDX file of unsigned bytes{wanted}"
    if len(content) < 4:
        raise DataError(path, expected, f"only {len(content)} bytes", REPLACE, "header")
    magic = int.from_bytes(bytes(content[:4]), "big")
    found_ndim = magic - (UINT8 << 8)
    if not 1 <= found_ndim <= 255:
        raise DataError(path, expected, f"magic number {magic}", REPLACE, "header")
    if ndim is not None and found_ndim != ndim:
        found = f"magic number {magic}, which is {found_ndim}-dimensional"
        raise DataError(
            path, expected, found, "Check that the file is under its own name", "header"
        )
    offset = 4 + 4 * found_ndim
    if len(content) < offset:
        found = f"only {len(content)} bytes"
        raise DataError(path, f"a header of {offset} bytes", found, REPLACE, "header")
    shape = tuple(np.frombuffer(content, ">u4", found_ndim, 4).tolist())
    size = len(content) - offset
    if size != math.prod(shape):
        expected = f"{math.prod(shape):,} bytes of data, from dimensions {shape} in the header"
        raise DataError(path, expected, f"{size:,}", REPLACE)
    array = np.frombuffer(content, np.uint8, offset=offset).reshape(shape)
    return array if array.flags.writeable else array.copy()


def write_idx(path: str | os.PathLike[str], array: npt.NDArray[np.uint8]) -> None:
    """Write an array as an IDX file, whole or not at all.

    Args:
        path: the file; compressed with gzip when the name ends in ``.gz``.
        array: uint8, 1 to 255 dimensions.

    Raises:
        ValueError: the array is not of uint8 or has no dimension; convert it.
    """
    if array.dtype != np.uint8 or array.ndim < 1:
        raise ValueError(f"IDX here holds uint8 arrays, got {array.dtype}, {array.ndim} dimensions")
    header = (UINT8 << 8 | array.ndim).to_bytes(4, "big")
    content = header + np.array(array.shape, ">u4").tobytes() + array.tobytes()
    with atomic_write(path) as file:
        # No time and no name inside, so that equal arrays make equal files.
        file.write(gzip.compress(content, mtime=0) if str(path).endswith(".gz") else content)
