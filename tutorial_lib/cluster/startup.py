"""From a number of ranks to ranks that are ready: start the supervisor, wait, explain failures."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import psutil

from tutorial_lib.cluster import mpi_flavour, runtime
from tutorial_lib.cluster.connection import (
    HUB_TIMEOUT_S,
    Connection,
    join,
    open_client,
    registered,
)
from tutorial_lib.cluster.errors import ClusterError, MpiError, StartError
from tutorial_lib.cluster.hosts import addresses_towards
from tutorial_lib.cluster.job_note import NEWS_S, StartLimit, cause
from tutorial_lib.cluster.launch import Hosts, plan_launch
from tutorial_lib.cluster.live_line import LiveLine
from tutorial_lib.cluster.obituary import first_death
from tutorial_lib.cluster.profiles import profile_folder
from tutorial_lib.cluster.runtime import ClusterFolder, ClusterRecord
from tutorial_lib.cluster.whereabouts import count

# -P: a reader's own file, random.py for example, must not stand in for Python's.
PYTHON = (sys.executable, "-P", "-m")
POLL_S = 0.02
STOP_TIMEOUT_S = 12.0  # the supervisor itself takes at most 9 s
LOG_LINES = 20


def plan(n: int, profile: str, owner: int | None, hosts: Hosts = None) -> ClusterFolder:
    """Make the folder of a new cluster, with the record of what is to run.

    Args:
        n: Number of ranks.
        profile: Name of the profile.
        owner: The process whose end is the cluster's; None for one that outlives its starter.
        hosts: Where, for a profile that takes hosts; None for where that says.

    Raises:
        MpiError: There is no MPI.
        HostsError: A host can't take ranks.
        ClusterError: There is no such profile.
    """
    configuration = profile_folder(profile)

    def program(name: str, config: str, *options: str) -> list[str]:
        path = f"--config={configuration / config}"
        return [*PYTHON, f"tutorial_lib.cluster.{name}", *options, path]

    engine = program("engine", "ipengine_config.py", "--mpi")
    launch = plan_launch(profile, n, tuple(engine), hosts)
    addresses = addresses_towards(launch.peers)
    folder = runtime.create(profile)
    in_folder = f"--profile-dir={folder.path}"
    controller = [*program("controller", "ipcontroller_config.py"), in_folder]
    if addresses:
        listens_on = addresses[0] if len(addresses) == 1 else "0.0.0.0"
        controller.append(f"--IPController.engine_ip={listens_on}")
    folder.write_record(
        ClusterRecord(
            profile=profile,
            n=n,
            host=socket.gethostname(),
            python=sys.prefix,
            mpi=launch.mpi,
            environment=launch.environment,
            controller_command=controller,
            # A linked rank has a folder of its own, on its host.
            engines_command=launch.command if addresses else [*launch.command, in_folder],
            owner=owner,
            addresses=addresses,
            silence_s=launch.silence_s,
            withdraw=[word.format(cluster=folder.path.name) for word in launch.withdraw],
        )
    )
    return folder


@dataclass
class Supervised:
    """A cluster whose supervisor this process has started.

    Attributes:
        folder: The cluster's, with its record.
        events: What the supervisor has told.
    """

    folder: ClusterFolder
    events: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.record = self.folder.read_record()
        # A test's own marks would have the engines think that they are tests.
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
        with self.folder.log("supervisor").open("ab") as log:
            self._process = subprocess.Popen(
                [*PYTHON, "tutorial_lib.cluster.supervisor", str(self.folder.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                bufsize=0,  # a buffer's lock could keep a process from ending, or from leaving
                start_new_session=True,
                env={**environment, **self.record.environment},
            )
        self._listener = threading.Thread(target=self._listen, name="supervisor", daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        descriptor, text = self._process.stdout.fileno(), b""
        while received := os.read(descriptor, 2**16):
            *lines, text = (text + received).split(b"\n")
            self.events += map(json.loads, lines)
        self.events.append({"event": "gone", "reason": "its supervisor has ended"})

    def why_dead(self) -> str:
        """Why the cluster is gone, or "" while it lives."""
        reasons = (event["reason"] for event in self.events if "reason" in event)
        return next(reasons, "")

    def told(self, event: str, timeout_s: float = 0) -> dict[str, Any]:
        """What the supervisor told of an event; empty when it has not happened.

        Args:
            event: Its name.
            timeout_s: How long to wait for it, in seconds.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            for told in self.events:
                if told["event"] == event:
                    return told
            if time.monotonic() >= deadline:
                return {}
            time.sleep(POLL_S)

    def endings(self) -> dict[int, dict[str, Any]]:
        """How ranks ended, of those that have."""
        if told := self.told("ending"):  # the folder may be gone
            return {int(rank): note for rank, note in told["endings"].items()}
        return self.folder.endings()

    def stop(self) -> None:
        """End the cluster, and wait until it has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(OSError), self._process.stdin as pipe:
            pipe.write(b"stop\n")
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()  # its controller and engines notice, and end
            self._process.wait()
        self._listener.join(STOP_TIMEOUT_S)
        self._process.stdout.close()
        self.folder.remove()

    def leave(self) -> None:
        """Let the cluster run on without this process."""
        # Its standard output stays open: the listener reads it until the end.
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.returncode = 0  # nobody waits for it any more


def start(
    n: int, profile: str, owner: int | None, timeout_s: float, hosts: Hosts = None
) -> Connection:
    """Start ranks and wait until they are ready.

    Args:
        n: Number of ranks.
        profile: Name of the profile.
        owner: The process whose end is the cluster's; None for one that outlives its starter,
            where the connection's ``close`` leaves the cluster running.
        timeout_s: How long it may take, in seconds.
        hosts: Where, for a profile that takes hosts; None for where that says.

    Returns:
        A connection to ranks that have passed an all-reduce.

    Raises:
        StartError: They did not come up: the message says which rank and why.
        MpiError: There is no MPI, or it does not fit mpi4py.
    """
    began = time.monotonic()
    line = LiveLine()
    line.show(f"starting {count(n)}")
    supervised = Supervised(plan(n, profile, owner, hosts))
    try:
        job = supervised.folder if supervised.record.is_job else None
        connection = _wait_until_ready(supervised, line, StartLimit(timeout_s, job))
    except BaseException:
        supervised.stop()
        raise
    threads = connection.information[0].threads
    line.end(
        f"{count(n)} ready in {time.monotonic() - began:.1f} s: {supervised.record.mpi}, "
        f"{threads} thread{'' if threads == 1 else 's'} each"
    )
    return connection


def _wait_until_ready(supervised: Supervised, line: LiveLine, limit: StartLimit) -> Connection:
    folder, n = supervised.folder, supervised.record.n
    client = None
    try:
        while client is None:
            try:
                client = open_client(folder.client_file, HUB_TIMEOUT_S)
            except (OSError, ValueError):
                _check(supervised, limit, set())
                time.sleep(POLL_S)
        known: dict[int, str] = {}
        while len(known) < n:
            with contextlib.suppress(ClusterError):  # a busy host's controller may be late
                known = registered(client)
            queued = limit.look()
            line.show(f"starting {count(n)}: {queued or f'{len(known)}/{n} engines'}")
            if len(known) < n:
                _check(supervised, limit, set(known))
                time.sleep(POLL_S)
        left_s = max(1.0, limit.left_s)
        try:
            engines, information = join(client, known, supervised.why_dead, left_s)
        except MpiError as error:
            raise MpiError(f"{error}; {_both_mpis(supervised)}") from None
        except ClusterError as error:
            raise StartError(_explain(supervised, str(error), None)) from error
    except BaseException:
        if client is not None:
            client.close(linger=0)
        raise

    def close() -> None:
        client.close(linger=0)
        if supervised.record.owner is None:
            supervised.leave()
        else:
            supervised.stop()

    def first(rank: int) -> tuple[int, str]:
        death = first_death(supervised.endings, rank)
        return cause(death, supervised.why_dead) if supervised.record.is_job else death

    return Connection(client, engines, information, supervised.why_dead, close, first)


def _check(supervised: Supervised, limit: StartLimit, known: set[int]) -> None:
    """Raise when starting has failed or takes too long."""
    if not (reason := _why_failed(supervised, limit, known)):
        return
    library = next((note["mpi"] for note in _reports(supervised).values() if note["mpi"]), "")
    if mpi_flavour.are_foreign(supervised.record.mpi, library):
        raise MpiError(_explain(supervised, f"{reason}. {_both_mpis(supervised)}", known))
    raise StartError(_explain(supervised, reason, known))


def _why_failed(supervised: Supervised, limit: StartLimit, known: set[int]) -> str:
    """Why starting has failed, or "" when it has not."""
    if news := supervised.told("ranks ended"):
        return str(news["why"] or news["status"])
    if reason := supervised.why_dead():
        return reason
    for rank, report in supervised.folder.reports().items():
        # MPI itself may not notice: the other ranks wait for this one.
        if rank not in known and not _is_running(report):
            if supervised.record.is_job and (
                why := supervised.told("ranks ended", NEWS_S).get("why")
            ):
                return str(why)
            return f"rank {rank}'s process has ended{_on_host(report)}"
    return "it took too long" if limit.left_s < 0 else ""


def _both_mpis(supervised: Supervised) -> str:
    libraries = {note["mpi"] for note in _reports(supervised).values() if note["mpi"]}
    return (
        f"{supervised.record.engines_command[0]} is {supervised.record.mpi}, and mpi4py uses "
        f"{' and '.join(sorted(libraries))}: both must belong to the same MPI"
    )


def _reports(supervised: Supervised) -> dict[int, dict[str, Any]]:
    """How far the ranks have come; from the supervisor once it has removed the folder."""
    told = supervised.told("ending").get("reports", {})
    return {int(rank): note for rank, note in told.items()} or supervised.folder.reports()


def _is_running(report: dict[str, Any]) -> bool:
    if "host" in report:  # the process number means nothing here
        return "has_ended" not in report
    try:
        return bool(psutil.Process(report["pid"]).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _on_host(report: dict[str, Any]) -> str:
    return f" on {report['host']}" if "host" in report else ""


def _explain(supervised: Supervised, reason: str, known: set[int] | None) -> str:
    """Say which ranks are missing, how far they came, and what their logs say last.

    ``known`` are the ranks that have come up; None when all have, but something else is wrong.
    """
    folder, record = supervised.folder, supervised.record
    logs = supervised.told("ending").get("logs") or folder.log_tails()
    reports = _reports(supervised)
    missing = [rank for rank in range(record.n) if rank not in (known or ())]
    came_up = f"{len(known)} of {count(record.n)} came up: " if known is not None else ""
    parts = [f"{came_up}{reason}"]
    for rank in missing[:4]:
        report = reports.get(rank)
        stage = "did not start"
        if report:
            stage = f"process {report['pid']}{_on_host(report)}, {report['stage']}"
        parts.append(f"rank {rank}: {stage}")
    names = [f"rank-{rank}" for rank in missing if logs.get(f"rank-{rank}")][:2]
    names += ["mpiexec"] + ([] if reports else ["controller", "supervisor"])
    tails = {name: "\n".join(logs.get(name, "").splitlines()[-LOG_LINES:]) for name in names}
    parts += [f"--- {name}.log\n{tail}" for name, tail in tails.items() if tail]
    parts.append(f"command: {shlex.join(record.engines_command)}")
    return "\n".join(parts)
