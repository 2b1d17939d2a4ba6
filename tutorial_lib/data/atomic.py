"""Files that are whole or not there."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

FILES = Path("/proc/self/fd")  # this process's open files, as links
TEMPORARY_SUFFIX = r"\.[0-9a-f]{16}"  # of the temporary file's name, after the file's own


@contextlib.contextmanager
def atomic_write(
    path: str | os.PathLike[str], mode: str = "wb", **open_kwargs: Any
) -> Iterator[IO[Any]]:
    """Open a file for writing that appears under its name only when all of it is on disk.

    It is written without a name, or a temporary one where files need one, in the same folder, and
    named when it is whole; a reader, another rank or a crash never sees half of it. Missing parent
    folders are made. A symbolic link stays one, and what is not a regular file, such as
    ``/dev/null``, is written to and not replaced.

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
        with _open_new(temporary, mode, open_kwargs) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if not temporary.exists():
                number = file.fileno()
                # Given a folder's number, which counts for nothing here, it follows the link.
                os.link(FILES / str(number), temporary, src_dir_fd=number)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _open_nameless(folder: str, flags: int) -> int:
    return os.open(folder, os.O_TMPFILE | flags & os.O_ACCMODE, 0o666)


def _open_new(path: Path, mode: str, open_kwargs: dict[str, Any]) -> IO[Any]:
    """Open a file that has no name yet, and so is gone if this process is killed.

    Where there is no such thing (NFS, macOS) it has the temporary name at once.
    """
    if hasattr(os, "O_TMPFILE") and FILES.is_dir():
        with contextlib.suppress(OSError):
            return open(path.parent, mode, opener=_open_nameless, **open_kwargs)
    return open(path, mode.replace("w", "x"), **open_kwargs)
