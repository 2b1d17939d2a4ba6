"""Whole files: read with errors that say what to do, and compared with their checksum."""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from collections.abc import Iterator

from tutorial_lib.data.errors import DataError

GZIP_MAGIC = b"\x1f\x8b"


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Return a file's content, decompressed if it is gzip (told by its content, not its name).

    Args:
        path: the file.

    Returns:
        The uncompressed bytes, at least one.

    Raises:
        DataError: the file is missing, unreadable, empty, or its gzip stream is damaged; put an
            intact copy in its place.
    """
    return b"".join(read_pieces(path))


def read_pieces(path: str | os.PathLike[str], piece_bytes: int = 1 << 20) -> Iterator[bytes]:
    """Yield what ``read_bytes`` returns, in pieces: no more than one of them is in memory.

    Args:
        path: the file.
        piece_bytes: the largest size of a piece.

    Yields:
        At least one piece; none is empty.

    Raises:
        DataError: as for ``read_bytes``.
    """
    is_empty = True
    try:
        with open(path, "rb") as file:
            is_gzip = file.peek(len(GZIP_MAGIC)).startswith(GZIP_MAGIC)
            with gzip.open(file) if is_gzip else file as content:
                while piece := content.read(piece_bytes):
                    yield piece
                    is_empty = False
    except FileNotFoundError:
        remedy = "Check the spelling of the folder and the file"
        raise DataError(path, "a file", "nothing there", remedy) from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        found = f"a damaged or truncated one ({error})"
        raise DataError(
            path, "a whole gzip file", found, "Replace it with an intact copy"
        ) from error
    except OSError as error:
        remedy = "Make it a file that you may read (ls -l shows what it is)"
        raise DataError(path, "a readable file", f"'{error.strerror}'", remedy) from error
    if is_empty:
        raise DataError(path, "data", "an empty file", "Replace it with an intact copy")


def has_sha256(path: str | os.PathLike[str], sha256: str) -> bool:
    """Tell whether a file is there and has this checksum, as it lies on disk.

    Args:
        path: the file.
        sha256: 64 hexadecimal digits, lower case.

    Raises:
        OSError: the file is there but cannot be read; make it readable, or remove it.
    """
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == sha256
    except FileNotFoundError:
        return False
