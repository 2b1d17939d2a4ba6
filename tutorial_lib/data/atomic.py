"""Files that are whole or not there."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any


@contextlib.contextmanager
def atomic_write(
    path: str | os.PathLike[str], mode: str = "wb", **open_kwargs: Any
) -> Iterator[IO[Any]]:
    """Open a file for writing that appears under its name only when all of it is on disk.

    It is written under a temporary name in the same folder, then renamed; a reader, another rank
    or a crash never sees half of it. Missing parent folders are made.

    Args:
        path: the file to make or replace.
        mode: as for ``open``, a mode that writes.
        **open_kwargs: as for ``open``.

    Yields:
        The open file. If the block raises, the file is removed and ``path`` stays as it was.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(descriptor, mode, **open_kwargs) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~current_umask())  # mkstemp's 0o600 hides it from others
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def current_umask() -> int:
    """Return the process's file mode creation mask, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
