"""Files that are read once for all ranks of a host, and after that mapped into memory."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import filelock
import numpy as np
import numpy.typing as npt

from tutorial_lib.data.atomic import TEMPORARY_SUFFIX, atomic_write
from tutorial_lib.data.columns import Columns, join_columns, key_of, map_columns, write_columns
from tutorial_lib.data.download import cache_dir
from tutorial_lib.data.files import GZIP_MAGIC, read_pieces

SMALL_BYTES = 1 << 22  # such a file is read in a moment, and is not worth another
PATIENCE_S = 5.0
LOCK_TIMEOUT_S = 1800.0
SAMPLES = 16
SAMPLE_BYTES = 1 << 12

Blocks = Callable[[], Iterable[Columns]]


def read_columns(sources: Sequence[str | os.PathLike[str]], blocks: Blocks) -> Columns:
    """Read files once for all, into a binary file of the cache, and map that.

    Args:
        sources: the files; small ones are read into memory.
        blocks: reads them: returns blocks of rows, and does so anew at each call.

    Returns:
        The columns. They may be written to: no other process sees it, and no file changes.

    Raises:
        Exception: what ``blocks`` raises.

    The binary lies in ``cache_dir() / "columns"`` and may be removed at any time. It is written
    anew once a source has another size, time or content. Where it can't be written (a folder
    without permission, a full disk), a line on standard error says so, and this process reads the
    files into memory of its own.

    **Distributed:** not collective, and safe to call on all ranks, nodes and in other programs at
    once: one of them reads under a lock, the others wait for it. The ranks of a host share the
    memory.
    """
    paths = [Path(os.path.realpath(source)) for source in sources]
    try:
        if sum(path.stat().st_size for path in paths) < SMALL_BYTES:
            return join_columns(blocks())
        key = json.dumps([_identity(path) for path in paths])
    except OSError:  # blocks() tells it better
        return join_columns(blocks())
    name = hashlib.sha256("\n".join(map(str, paths)).encode()).hexdigest()[:16]
    stem = re.sub(r"[^\w.-]", "_", paths[0].name)
    cached = cache_dir() / "columns" / f"{stem}-{name}"
    try:
        return map_columns(cached, key) or _make(cached, key, blocks)
    except filelock.Timeout:
        reason = f"{_holder(cached)} has been reading it for {LOCK_TIMEOUT_S:.0f} s"
    except OSError as error:
        reason = f"{error.strerror or error}: {error.filename or cached}"
    _say(f"{paths[0]}: can't be kept in the cache ({reason}); takes memory of this process instead")
    return join_columns(blocks())


def read_content(path: str | os.PathLike[str]) -> npt.NDArray[np.uint8]:
    """Return a file's content, decompressed if it is gzip, as ``read_columns`` does.

    A large file that is not compressed is mapped where it lies; so don't write into it, but
    replace it, while a program uses it.

    Args:
        path: the file.

    Returns:
        uint8 (bytes,), at least one. It may be written to, and no file changes.

    Raises:
        DataError: as for ``read_bytes``.
    """
    with contextlib.suppress(OSError), open(path, "rb") as file:
        is_large = os.fstat(file.fileno()).st_size >= SMALL_BYTES
        if is_large and file.read(len(GZIP_MAGIC)) != GZIP_MAGIC:
            return np.memmap(file, np.uint8, "c")
    pieces = read_columns(
        [path], lambda: ((np.frombuffer(piece, np.uint8),) for piece in read_pieces(path))
    )
    return pieces[0]


def _identity(path: Path) -> list[str | int]:
    """What changes when a file does: size, time, and some of its content."""
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        for place in range(SAMPLES):
            file.seek(max(0, status.st_size - SAMPLE_BYTES) * place // (SAMPLES - 1))
            digest.update(file.read(SAMPLE_BYTES))
    return [str(path), status.st_size, status.st_mtime_ns, digest.hexdigest()]


def _make(cached: Path, key: str, blocks: Blocks) -> Columns:
    cached.parent.mkdir(parents=True, exist_ok=True)
    with _locked(cached):
        if (made := map_columns(cached, key)) is None:  # nobody was faster
            _remove_leftovers(cached)
            with atomic_write(cached) as file:
                write_columns(file, blocks(), key)
            made = map_columns(cached, key)
    if made is None:
        raise OSError(f"another program has replaced {cached}")
    return made


@contextlib.contextmanager
def _locked(cached: Path) -> Iterator[None]:
    """Hold the lock of a cached file, and say by whom it is held if that takes long."""
    lock = filelock.FileLock(_beside(cached, "lock"))
    try:
        lock.acquire(timeout=min(PATIENCE_S, LOCK_TIMEOUT_S))
    except filelock.Timeout:
        _say(f"waiting for {_holder(cached)}, which reads the same data into {cached}")
        lock.acquire(timeout=max(0, LOCK_TIMEOUT_S - PATIENCE_S))
    note = _beside(cached, "holder")
    try:
        note.write_text(f"process {os.getpid()} on {socket.gethostname()}", encoding="utf-8")
        yield
    finally:
        note.unlink(missing_ok=True)
        lock.release()


def _holder(cached: Path) -> str:
    with contextlib.suppress(OSError):
        return _beside(cached, "holder").read_text(encoding="utf-8") or "another process"
    return "another process"


def _beside(cached: Path, kind: str) -> Path:
    return cached.with_name(f".{cached.name}.{kind}")


def _remove_leftovers(cached: Path) -> None:
    """Remove what a writer that was killed has left, and files whose sources are gone.

    Call it under the lock of ``cached``.
    """
    leftover = re.compile(rf"\.{re.escape(cached.name)}{TEMPORARY_SUFFIX}")
    for path in cached.parent.iterdir():
        if leftover.fullmatch(path.name) or (path.name[0] != "." and _is_orphan(path)):
            path.unlink(missing_ok=True)


def _is_orphan(cached: Path) -> bool:
    key = None
    with contextlib.suppress(OSError):
        key = key_of(cached)
    return key is not None and not all(os.path.exists(path) for path, *_ in json.loads(key))


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
