"""What a rank finds on its host before anything is trained: versions, data, a folder to write to.

These functions run on the ranks. Each thing is looked at in a thread of its own and given up after
a while, since a file system of another host that hangs would hang whoever looks at it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

import tutorial_lib
from tutorial_lib.cluster.mpi_flavour import library_name
from tutorial_lib.distributed.gpu_placement import own_wish
from tutorial_lib.distributed.topology import Topology

LIMIT_S = 60.0
# Beyond so many bytes, a folder of data is compared by the names and sizes of its files.
HASHED_BYTES = 2 << 30
CHUNK_BYTES = 1 << 20

# These import torch, unlike all of the above; its modules import each other, so one at a time.
_IMPORTING = threading.Lock()

T = TypeVar("T")


@dataclass(frozen=True)
class Facts:
    """What one rank has found.

    Attributes:
        rank: In MPI.COMM_WORLD.
        host: Name of its host.
        local_rank: Its number among the ranks of that host.
        versions: By name, of Python, packages and MPI, and a checksum of this package's files.
        files: Checksum, or size where there is too much to read, of each file of data by name.
        data_problem: Why the data can't be read; "" if it can.
        write_problem: Why checkpoints can't be written; "" if they can, or nobody has asked.
        free_bytes: Of the file system for checkpoints; None when nobody has asked.
        gpus: A name for each GPU that torch sees here.
        nccl: Version of NCCL, "" if torch has none.
        wish: What GAN_TUTORIAL_DEVICE says there.
        problems: What else went wrong while looking, by subject.
    """

    rank: int
    host: str
    local_rank: int = 0
    versions: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    data_problem: str = ""
    write_problem: str = ""
    free_bytes: int | None = None
    gpus: tuple[str, ...] = ()
    nccl: str = ""
    wish: str = "auto"
    problems: dict[str, str] = field(default_factory=dict)


def look(data_dir: str, checkpoint_dir: str, limit_s: float = LIMIT_S) -> Facts:
    """Look at all of it.

    Args:
        data_dir: A folder of data; "" for MNIST as it comes with the package.
        checkpoint_dir: Where rank 0 will write; need not exist yet.
        limit_s: How long all looks together may take, in seconds: they are under way at once.

    Returns:
        What it found, but for its local rank, which only all ranks together know.

    **Distributed:** not collective: ranks that hang keep no other from answering.
    """
    from mpi4py import MPI

    rank = MPI.COMM_WORLD.rank
    versions_look = _Look(limit_s, _versions)
    data_look = _Look(limit_s, lambda: checksums(_data(data_dir)), data_dir)
    write_look = _Look(limit_s, lambda: _write(rank, checkpoint_dir), checkpoint_dir)
    gpus_look = _Look(limit_s, _gpus)
    # All of them are under way: what hangs takes no time from the others.
    nothing: dict[str, str] = {}
    no_gpu: tuple[tuple[str, ...], str] = (), ""
    versions, versions_problem = versions_look.outcome(nothing)
    files, data_problem = data_look.outcome(nothing)
    (unwritten, free_bytes), write_problem = write_look.outcome(("", 0))
    (gpus, nccl), gpus_problem = gpus_look.outcome(no_gpu)
    problems = {"versions": versions_problem, "GPUs": gpus_problem}
    return Facts(
        rank=rank,
        host=socket.gethostname(),
        versions=versions,
        files=files,
        data_problem=data_problem,
        write_problem=write_problem or unwritten,
        free_bytes=free_bytes if rank == 0 else None,
        gpus=gpus,
        nccl=nccl,
        wish=own_wish(),
        problems={subject: problem for subject, problem in problems.items() if problem},
    )


def checksums(folder: Path, hashed_bytes: int = HASHED_BYTES) -> dict[str, str]:
    """Sum up each file of a folder and the folders in it.

    Args:
        folder: The folder.
        hashed_bytes: If it holds more bytes, sizes stand in for checksums.

    Returns:
        The first half of the SHA-256, or the size in words, by path inside the folder.

    Raises:
        OSError: The folder or a file can't be read, or there is no file.
    """
    paths = [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".") and "__pycache__" not in path.parts
    ]
    if not paths:
        folder.stat()  # says so if it isn't there
        raise FileNotFoundError(2, "no file in this folder", str(folder))
    is_small = sum(path.stat().st_size for path in paths) <= hashed_bytes
    return {
        str(path.relative_to(folder)): _sha256(path) if is_small else f"{path.stat().st_size} bytes"
        for path in paths
    }


def try_to_write(folder: Path) -> tuple[str, int]:
    """Write a file where checkpoints will go, and remove it.

    Args:
        folder: Where; while it does not exist, the folder that it will be made in counts.

    Returns:
        Why that failed, "" if it did not; and the free bytes.
    """
    while not folder.exists() and folder.parent != folder:
        folder = folder.parent
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".preflight-") as file:
            file.write(bytes(CHUNK_BYTES))
            file.flush()
            os.fsync(file.fileno())
        return "", shutil.disk_usage(folder).free
    except OSError as error:
        return f"{folder}: {error.strerror or error}", 0


class _Look(Generic[T]):
    """Some work under way in a thread of its own, with a time by which it must be done.

    Args:
        limit_s: For the work, from now on, in seconds.
        work: To be done.
        where: The folder it is about, if there is one.
    """

    def __init__(self, limit_s: float, work: Callable[[], T], where: str = "") -> None:
        self._deadline = time.monotonic() + limit_s
        self._done: list[T] = []
        self._problem = f"{where}: " * bool(where) + f"no answer within {limit_s:g} s"
        self._worker = threading.Thread(target=self._do, args=(work,), name="look", daemon=True)
        self._worker.start()

    def _do(self, work: Callable[[], T]) -> None:
        try:
            self._done.append(work())
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            self._problem = f"{where}{error.strerror or error}"
        except Exception as error:
            self._problem = f"{type(error).__name__}: {error}"

    def outcome(self, otherwise: T) -> tuple[T, str]:
        """What the work has returned, or something else and why it could not be done in time."""
        self._worker.join(max(0.0, self._deadline - time.monotonic()))
        return (self._done[0], "") if self._done else (otherwise, " ".join(self._problem.split()))


def _write(rank: int, checkpoint_dir: str) -> tuple[str, int]:
    return try_to_write(Path(checkpoint_dir)) if rank == 0 else ("", 0)


def _data(data_dir: str) -> Path:
    if data_dir:
        return Path(data_dir)
    with _IMPORTING:
        from tutorial_lib.data.datasets import BUNDLED_MNIST

    return BUNDLED_MNIST


def _versions() -> dict[str, str]:
    with _IMPORTING:
        from mpi4py import MPI

        from tutorial_lib.distributed.versions import own_versions

    return {
        **own_versions(),
        "MPI": library_name(MPI.Get_library_version()),
        "gan-tutorial's files": _own_files(),
    }


def _own_files() -> str:
    """A checksum of this package's modules: two clones of one version may differ."""
    package = Path(tutorial_lib.__file__).parent
    total = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        total.update(str(path.relative_to(package)).encode() + b"\0")
        total.update(path.read_bytes())
    return total.hexdigest()[:12]


def _gpus() -> tuple[tuple[str, ...], str]:
    with _IMPORTING:
        import torch

        from tutorial_lib.distributed.gpus import own_seat

    seat = own_seat(Topology())
    nccl = ".".join(map(str, torch.cuda.nccl.version())) if seat.gpus and seat.has_nccl else ""
    return seat.gpus, nccl


def _sha256(path: Path) -> str:
    total = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            total.update(chunk)
    return total.hexdigest()[:32]
