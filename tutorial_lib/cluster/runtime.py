"""Where a running cluster keeps its keys, its logs and its record: a private folder each.

<runtime folder>/gan-tutorial/<profile>-<random>/    0700, removed when the cluster stops
    cluster.json    what runs: commands, number of ranks, who owns it
    lifeline        locked by the supervisor as long as it lives
    security/       ipyparallel's connection files, with their keys
    log/            controller.log, mpiexec.log, rank-0.log, rank-1.log ...
    ranks/          rank-0.json ...: process id and how far it has come; end-0.json: how it ended
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tutorial_lib.cluster import lifeline

FOLDER_VARIABLE = "GAN_TUTORIAL_CLUSTER"
RUNTIME_VARIABLE = "GAN_TUTORIAL_RUNTIME_DIR"
RECORD_FILE, AWAY_FILE = "cluster.json", "away.json"  # the second: see away.py
LOG_TAIL_BYTES = 4000
STARTING_S = 60.0  # so long a cluster may have a folder, and no supervisor yet
FORGOTTEN_S = 7 * 24 * 3600.0
SILENCE_S = 15.0


@dataclass(frozen=True)
class ClusterRecord:
    """What a cluster's folder says of it.

    Attributes:
        profile: Name of the profile.
        n: Number of ranks.
        host: Name of the host it was started on.
        python: The environment whose Python it was started with.
        mpi: The MPI that starts them, in words.
        environment: Variables that it needs.
        controller_command: Command line of the controller.
        engines_command: Command line of the ranks.
        owner: Process whose end is the cluster's end; None for a cluster that outlives who
            started it.
        supervisor: Process id of the supervisor, once it runs.
        addresses: Of this host, those that the ranks' hosts reach; empty when all ranks run here
            and need no link.
        silence_s: After so long without a sign of life a linked rank is lost, in seconds.
        withdraw: Command line that takes back the batch job that the ranks are, whatever is known
            of it; empty when they are none.
    """

    profile: str
    n: int
    host: str
    python: str
    mpi: str
    environment: dict[str, str]
    controller_command: list[str]
    engines_command: list[str]
    owner: int | None = None
    supervisor: int | None = None
    addresses: list[str] = field(default_factory=list)
    silence_s: float = SILENCE_S
    withdraw: list[str] = field(default_factory=list)

    @property
    def is_job(self) -> bool:
        """Whether the ranks are a batch job, of which ``job_note`` tells."""
        return bool(self.withdraw)


@dataclass(frozen=True)
class ClusterFolder:
    """The folder of one cluster."""

    path: Path

    @property
    def lifeline(self) -> Path:
        """Locked as long as the cluster's supervisor lives."""
        return self.path / "lifeline"

    @property
    def client_file(self) -> Path:
        """How a notebook reaches the controller."""
        return self.path / "security" / "ipcontroller-client.json"

    @property
    def engine_file(self) -> Path:
        """How an engine reaches the controller."""
        return self.path / "security" / "ipcontroller-engine.json"

    def log(self, name: str) -> Path:
        """The log of "supervisor", "controller", "mpiexec" or "rank-0"."""
        return self.path / "log" / f"{name}.log"

    def log_tails(self) -> dict[str, str]:
        """The end of each log that there is, by name."""
        tails = {}
        for path in _matching(self.path / "log", "*.log"):
            with contextlib.suppress(OSError), path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - LOG_TAIL_BYTES))
                tails[path.stem] = file.read().decode(errors="replace").strip()
        return tails

    def write_record(self, record: ClusterRecord) -> None:
        """Say what runs here."""
        write_json(self.path / RECORD_FILE, asdict(record))

    def read_record(self) -> ClusterRecord:
        """What runs here."""
        return ClusterRecord(**_read_json(self.path / RECORD_FILE))

    def report(self, rank: int, stage: str, mpi: str = "") -> None:
        """Note how far a rank's process has come; called by it.

        Args:
            rank: Its rank, as its launcher says.
            stage: For a reader: "importing", "starting MPI" ...
            mpi: The MPI library of mpi4py, once known.
        """
        self.write_report({"rank": rank, "pid": os.getpid(), "stage": stage, "mpi": mpi})

    def write_report(self, note: dict[str, Any]) -> None:
        """Keep what a rank has noted.

        Args:
            note: As ``report`` makes it; that of a linked rank has its "host" too, and
                "has_ended" when it is gone.
        """
        write_json(self.path / "ranks" / f"rank-{int(note['rank'])}.json", note)

    def reports(self) -> dict[int, dict[str, Any]]:
        """The last report of each rank whose process has started."""
        return self._notes("rank")

    def note_end(self, rank: int, pid: int, code: int, time: float) -> None:
        """Keep how a rank's process ended.

        Args:
            rank: The rank.
            pid: Its process.
            code: Its exit status, or the negative number of the signal that ended it.
            time: When, in seconds since the epoch.
        """
        note = {"rank": rank, "pid": pid, "code": code, "time": time}
        write_json(self.path / "ranks" / f"end-{rank}.json", note)

    def endings(self) -> dict[int, dict[str, Any]]:
        """How the processes of ranks ended, of those that have."""
        return self._notes("end")

    def _notes(self, kind: str) -> dict[int, dict[str, Any]]:
        notes = {}
        for path in _matching(self.path / "ranks", f"{kind}-*.json"):
            with contextlib.suppress(OSError, ValueError):
                note = _read_json(path)
                notes[int(note["rank"])] = note
        return dict(sorted(notes.items()))

    @property
    def is_alive(self) -> bool:
        """Whether its supervisor lives."""
        return lifeline.is_held(self.lifeline)

    def remove(self) -> None:
        """Remove it with all its files."""
        shutil.rmtree(self.path, ignore_errors=True)


def runtime_folder() -> Path:
    """The user's private folder for running clusters, made when it is not there."""
    errors: list[OSError] = []
    for base in _bases():
        folder = base / "gan-tutorial"
        try:
            base.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
            if folder.stat().st_uid != os.getuid():
                raise PermissionError(f"{folder} belongs to another user")
            with tempfile.NamedTemporaryFile(dir=folder) as file:
                os.close(lifeline.hold(Path(file.name)))  # some shared file systems have no locks
                return folder
        except OSError as error:
            errors.append(error)
    raise errors[0]


def create(profile: str) -> ClusterFolder:
    """Make a folder for a new cluster, and remove those of clusters that were killed.

    Args:
        profile: Name of the profile.
    """
    for folder in _folders():
        if _is_abandoned(folder):
            folder.remove()
    path = Path(tempfile.mkdtemp(prefix=f"{profile}-", dir=runtime_folder()))
    for name in ("security", "log", "ranks"):
        (path / name).mkdir(mode=0o700)
    return ClusterFolder(path)


def write_private(path: Path, text: str) -> None:
    """Write a file that only this user may read, whole or not at all.

    Args:
        path: Of the file.
        text: Its content.
    """
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
        file.write(text)  # 0600
    Path(file.name).replace(path)


def running(profile: str | None = None) -> list[tuple[ClusterFolder, ClusterRecord]]:
    """The clusters of this user that run on this host, newest first: folder and record of each.

    Args:
        profile: Only those of this profile; None for all.
    """
    found = []
    for folder in _folders():
        record = _record(folder)
        if record is None or record.supervisor is None:  # it is still starting
            continue
        if profile in (None, record.profile) and _is_here(record) and folder.is_alive:
            with contextlib.suppress(FileNotFoundError):  # it has just been removed
                found.append((folder.path.stat().st_ctime, folder, record))
    found.sort(key=lambda cluster: cluster[0], reverse=True)
    return [(folder, record) for _, folder, record in found]


def _folders() -> list[ClusterFolder]:
    return [ClusterFolder(path) for path in runtime_folder().iterdir() if path.is_dir()]


def _matching(folder: Path, pattern: str) -> list[Path]:
    """Files of a folder by name; none where the cluster's end has removed it, even meanwhile."""
    with contextlib.suppress(FileNotFoundError):
        return sorted(folder.glob(pattern))
    return []


def _record(folder: ClusterFolder) -> ClusterRecord | None:
    with contextlib.suppress(OSError, ValueError, TypeError):
        return folder.read_record()
    return None


def _host(folder: ClusterFolder) -> str:
    """Name of the host whose process holds a folder; "" when it does not say."""
    for name in (AWAY_FILE, RECORD_FILE):
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            return str(_read_json(folder.path / name)["host"])
    return ""


def _is_here(record: ClusterRecord) -> bool:
    """Whether a cluster is of this host: the folder may be shared by several."""
    return record.host == socket.gethostname()


def _is_abandoned(folder: ClusterFolder) -> bool:
    """Whether a folder's cluster is gone for certain: locks of other hosts may not show here."""
    with contextlib.suppress(OSError):
        age_s = time.time() - folder.path.stat().st_mtime
        if _host(folder) != socket.gethostname():
            return age_s > FORGOTTEN_S
        return age_s > STARTING_S and not folder.is_alive
    return False


def _bases() -> Iterator[Path]:
    if chosen := os.environ.get(RUNTIME_VARIABLE):
        yield Path(chosen)
        return
    if given := os.environ.get("XDG_RUNTIME_DIR"):
        yield Path(given)
    if sys.platform == "darwin":
        yield Path.home() / "Library" / "Caches"
    else:
        yield Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    yield Path(tempfile.gettempdir()) / f"user-{os.getuid()}"


def write_json(path: Path, value: object) -> None:
    """Write so that a reader sees the old or the new text, never a part.

    Args:
        path: Of the file.
        value: What it is to say.
    """
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_text(json.dumps(value), encoding="utf-8")
    temporary.replace(path)


def _read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
