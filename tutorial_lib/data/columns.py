"""Columns of samples, such as images and labels: in memory, or mapped from one file.

A file of columns holds their rows, one column after another, then a footer: JSON, its length and
a magic number. Whoever finds no footer at the end has no whole file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import IO, Any

import numpy as np
import numpy.typing as npt

Columns = tuple[npt.NDArray[Any], ...]

MAGIC = b"columns1"
LENGTH_BYTES = 8
END_BYTES = LENGTH_BYTES + len(MAGIC)
ALIGNMENT = 64


def join_columns(blocks: Iterable[Columns]) -> Columns:
    """Put blocks of rows together in memory.

    Args:
        blocks: one or more; each has the same columns, and equally many rows in all of them.

    Returns:
        New arrays, which may be written to.
    """
    return tuple(np.concatenate(column) for column in zip(*blocks, strict=True))


def write_columns(file: IO[bytes], blocks: Iterable[Columns], key: str) -> None:
    """Write blocks of rows as they come; only columns after the first wait in memory.

    Args:
        file: open for writing, at its beginning.
        blocks: as for ``join_columns``.
        key: what ``map_columns`` will be asked for.

    Raises:
        OSError: the file can't be written.
    """
    rest: list[Columns] = []
    rows = 0
    for first, *others in blocks:
        file.write(np.ascontiguousarray(first).data)
        rows += len(first)
        rest.append((first[:0], *others))
    empty, *others = join_columns(rest)
    columns = [{"dtype": empty.dtype.str, "shape": (rows, *empty.shape[1:]), "offset": 0}]
    for column in others:
        file.write(bytes(-file.tell() % ALIGNMENT))
        columns.append({"dtype": column.dtype.str, "shape": column.shape, "offset": file.tell()})
        file.write(np.ascontiguousarray(column).data)
    footer = json.dumps({"key": key, "columns": columns}).encode()
    file.write(footer + len(footer).to_bytes(LENGTH_BYTES, "little") + MAGIC)


def map_columns(path: str | os.PathLike[str], key: str) -> Columns | None:
    """Map a file of columns: all processes of a host that do so share its pages.

    Args:
        path: of the file, which must not change as long as the arrays are used; it may be
            removed or replaced by another.
        key: what it was written for.

    Returns:
        Arrays whose changes stay in this process; None if there is no file, it is not whole, or
        was written for another key.

    Raises:
        OSError: the file is there and can't be read.
    """
    try:
        with open(path, "rb") as file:
            footer = _footer(file)
            if footer is None or footer["key"] != key:
                return None
            return tuple(
                np.memmap(file, column["dtype"], "c", column["offset"], tuple(column["shape"]))
                for column in footer["columns"]
            )
    except FileNotFoundError:
        return None


def key_of(path: str | os.PathLike[str]) -> str | None:
    """Return the key that a file of columns was written for, or None if it is no whole one.

    Args:
        path: of the file.

    Raises:
        OSError: the file can't be read.
    """
    with open(path, "rb") as file:
        footer = _footer(file)
    return None if footer is None else str(footer["key"])


def _footer(file: IO[bytes]) -> Any:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - END_BYTES))
    length, magic = int.from_bytes(file.read(LENGTH_BYTES), "little"), file.read()
    if magic != MAGIC or length > size - END_BYTES:
        return None
    file.seek(size - END_BYTES - length)
    try:
        return json.loads(file.read(length))
    except ValueError:  # damaged
        return None
