"""Clusters that outlive who starts them: start, stop and list them, for the command line."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil

from tutorial_lib.cluster import startup
from tutorial_lib.cluster.connection import open_client, registered
from tutorial_lib.cluster.control_channel import ControlChannel, Engine
from tutorial_lib.cluster.errors import ClusterError
from tutorial_lib.cluster.launch import Hosts
from tutorial_lib.cluster.profiles import profile_folders
from tutorial_lib.cluster.runtime import ClusterFolder, ClusterRecord, running
from tutorial_lib.cluster.stop_limits import STOP_TIMEOUT_S
from tutorial_lib.cluster.whereabouts import Whereabouts, count, read

KILL_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 3.0


@dataclass(frozen=True)
class ClusterStatus:
    """A cluster that runs on this host.

    Attributes:
        profile: Its profile.
        n: Number of ranks it was started with; None when not known.
        engines: Number of engines that its controller knows.
        mpi: What started the ranks, in words.
        owner: The process that it ends with; None when it outlives who started it.
        origin: Who started it: "gan-tutorial", "notebook" or "ipcluster".
        folder: Where its keys and logs are.
    """

    profile: str
    n: int | None
    engines: int
    mpi: str
    owner: int | None
    origin: str
    folder: Path

    def __str__(self) -> str:
        ranks = f"{self.engines} of {self.n}" if self.n is not None else str(self.engines)
        mpi = f", {self.mpi}" if self.mpi else ""
        owner = f", ends with process {self.owner}" if self.owner is not None else ""
        return f"{self.profile}: {ranks} ranks, started by {self.origin}{mpi}{owner}"


def start_cluster(
    n: int, profile: str = "mpi", timeout_s: float = 60.0, hosts: Hosts = None
) -> ClusterStatus:
    """Start a cluster that runs until it is stopped, and wait until it is ready.

    Args:
        n: Number of ranks.
        profile: Name of the profile.
        timeout_s: How long starting may take, in seconds.
        hosts: Where, for a profile that takes hosts: "node1:2,node2:2", or a host file; None for
            those that the profile names.

    Returns:
        Its status.

    Raises:
        ClusterError: One of this profile runs already: stop it first, or use it.
        StartError: The ranks did not come up: the message says which rank, and why.
        MpiError: There is no MPI, or it does not fit mpi4py.
    """
    for status in cluster_status(profile):
        if status.owner is None:
            raise ClusterError(f"one runs already: {status}. Stop it first, or use it")
    startup.start(n, profile, None, timeout_s, hosts).close()
    return cluster_status(profile)[0]


def stop_cluster(profile: str = "mpi") -> int:
    """Stop the clusters of a profile that outlive who started them.

    Clusters that belong to a notebook are left alone.

    Args:
        profile: Name of the profile.

    Returns:
        How many have been stopped.

    Raises:
        ClusterError: One can't be stopped.
    """
    stopped = 0
    for folder, record in running(profile):
        if record.owner is None:
            _stop(folder, record)
            stopped += 1
    for status in _of_ipcluster(profile):
        _stop_with_ipcluster(status.folder)
        stopped += 1
    return stopped


def cluster_status(profile: str | None = None) -> list[ClusterStatus]:
    """The clusters of this user that run on this host.

    Args:
        profile: Only those of a profile; None for all, of ipcluster's those of profile "mpi".

    Returns:
        Their status, those that outlive who started them first.
    """
    found = []
    for folder, record in running(profile):
        found.append(
            ClusterStatus(
                profile=record.profile,
                n=record.n,
                engines=_engines(folder.client_file) or 0,
                mpi=record.mpi,
                owner=record.owner,
                origin=_origin(record.owner),
                folder=folder.path,
            )
        )
    found += _of_ipcluster(profile or "mpi")
    return sorted(found, key=lambda status: status.owner is not None)


def where(profile: str | None = None) -> list[tuple[str, Whereabouts]]:
    """What the ranks of the clusters on this host are doing now, while a cell runs too.

    Args:
        profile: Only those of a profile; None for all.

    Returns:
        Which cluster it is, in words, and where its ranks are.
    """
    found = []
    for folder, record in running(profile):
        try:
            with open_client(folder.client_file, ANSWER_TIMEOUT_S) as client:
                engines = registered(client, ANSWER_TIMEOUT_S)
                numbered = {
                    number: Engine(number, number, uuid) for number, uuid in engines.items()
                }
                answers = ControlChannel(client, numbered).ask("where", None, ANSWER_TIMEOUT_S)
        except (OSError, ValueError, ClusterError):
            continue  # it has just ended, or starts
        by_rank = {answer["rank"]: answer for answer in answers.values()}
        title = f"{record.profile}: {count(record.n)}, started by {_origin(record.owner)}"
        found.append((title, read(by_rank, range(record.n))))
    return found


def _origin(owner: int | None) -> str:
    return "gan-tutorial" if owner is None else "a notebook or script"


def _of_ipcluster(profile: str) -> list[ClusterStatus]:
    return [
        ClusterStatus(profile, None, engines, "", None, "ipcluster", folder)
        for folder in profile_folders(profile)
        for path in (folder / "security").glob("ipcontroller*-client.json")
        if (engines := _engines(path)) is not None
    ]


def _engines(client_file: Path) -> int | None:
    """How many engines a controller knows; None when none answers."""
    try:
        with open_client(client_file, ANSWER_TIMEOUT_S) as client:
            return len(registered(client, ANSWER_TIMEOUT_S))
    except (OSError, ValueError, ClusterError):
        return None


def _stop(folder: ClusterFolder, record: ClusterRecord) -> None:
    """End a cluster by its supervisor, whose lock says that its process id still holds."""
    pid = record.supervisor
    assert pid is not None  # as in the record of each that runs
    with contextlib.suppress(psutil.NoSuchProcess):
        supervisor = psutil.Process(pid)
        for number, timeout_s in (
            (signal.SIGTERM, STOP_TIMEOUT_S),
            (signal.SIGKILL, KILL_TIMEOUT_S),  # its controller and engines notice, and end
        ):
            if folder.is_alive:
                supervisor.send_signal(number)
            with contextlib.suppress(psutil.TimeoutExpired):
                supervisor.wait(timeout_s)
                break
        else:
            raise ClusterError(f"process {pid} does not end: see {folder.path}")
    folder.remove()


def _stop_with_ipcluster(profile_folder: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "ipyparallel.cluster",
        "stop",
        f"--profile-dir={profile_folder}",
    ]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if run.returncode != 0:
        raise ClusterError(f"`ipcluster stop` failed: {run.stderr.strip()[-500:]}")
