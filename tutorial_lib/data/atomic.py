"""Files that are whole or not there."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

TEMPORARY_SUFFIX = r"\.[0-9a-f]{16}"  # of the temporary file's name, after the file's own


@contextlib.contextmanager
def atomic_write(
    path: str | os.PathLike[str], mode: str = "wb", **open_kwargs: Any
) -> Iterator[IO[Any]]:
    """Open a file for writing that appears under its name only when all of it is on disk.

    It is written under a temporary name in the same folder, then renamed; a reader, another rank
    or a crash never sees half of it. Missing parent folders are made. A symbolic link stays one,
    and what is not a regular file, such as ``/dev/null``, is written to and not replaced.

    Args:
        path: the file to make or replace.
        mode: ``"w"`` or ``"wb"``.
        **open_kwargs: as for ``open``.

    Yields:
        The open file. If the block raises, the file is removed and ``path`` stays as it was.
    """
    path = Path(os.path.realpath(path))
    if path.exists() and not path.is_file():
        with open(path, mode, **open_kwargs) as file:
            yield file
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with open(temporary, mode.replace("w", "x"), **open_kwargs) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
