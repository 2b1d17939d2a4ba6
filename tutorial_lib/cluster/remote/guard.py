"""The small process beside each engine of a cluster of several hosts; it stands for the supervisor.

Forked by the engine before anything else, it holds the link to the supervisor, and on the engine's
host what the supervisor holds on its own: a private folder with the lifeline, the controller's
connection file, the rank's report and its log. It is a process, not a thread, because an engine in
native code may keep Python's lock for longer than a link may be silent.

When the link ends, or is silent for too long, the engine ends with it; if it does not, it is
killed. Then the folder is removed. When the network has been cut, nobody else can end what MPI and
ssh have left on this host, so the guard does it too.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import socket
import time
import traceback
from dataclasses import dataclass
from typing import Any

import psutil

from tutorial_lib.cluster import lifeline, runtime, warden
from tutorial_lib.cluster.process import print_to, send_signal
from tutorial_lib.cluster.remote import away
from tutorial_lib.cluster.remote.start_data import StartData
from tutorial_lib.cluster.remote.switchboard import BEAT_S
from tutorial_lib.cluster.remote.wire import Wire
from tutorial_lib.cluster.runtime import LOG_TAIL_BYTES, ClusterFolder

TURN_S = 0.05
ENGINE_GRACE_S = 4.0  # an engine that is told to end takes at most 3 s
END_WAIT_S = 6.0  # for the link to end after the supervisor has said so
WARDEN_S = 1.0  # for the warden to note how the engine has ended
DAEMONS = frozenset({"hydra_pmi_proxy", "orted", "prted"})
SHELLS = frozenset({"sh", "dash", "bash", "zsh", "ksh", "csh", "tcsh", "fish"})
_SSH_SESSION = re.compile(r"sshd(-session)?: \S+@notty")  # no terminal: a command's, not a person's


class UnreachableError(RuntimeError):
    """This host can't reach the cluster's supervisor."""


@dataclass(frozen=True)
class Arrival:
    """An engine that has been linked to its cluster.

    Attributes:
        folder: Its own, on its host.
        address: Of this host, the one that the supervisor's host reaches.
    """

    folder: ClusterFolder
    address: str


def arrive(start: StartData, rank: int) -> Arrival:
    """Link this engine to its cluster; to be called before threads and sockets exist.

    Args:
        start: What it was told.
        rank: As its launcher says.

    Raises:
        UnreachableError: The supervisor can't be reached from this host.
    """
    folder = away.create(start.cluster, rank)
    engine = os.getpid()
    read_end, write_end = os.pipe()
    if os.fork() == 0:
        status = 1
        try:
            os.setsid()
            warden.spare()
            os.close(read_end)
            _detach(write_end)
            _Guard(start, rank, folder, engine).run(write_end)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            folder.remove()
            os._exit(status)
    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        answer = json.loads(pipe.readline() or '{"failure": "the guard of this engine has failed"}')
    if failure := answer.get("failure"):
        raise UnreachableError(failure)
    return Arrival(folder, answer["address"])


def _detach(kept: int) -> None:
    """Close what was inherited: the launcher waits for the end of an engine's output."""
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    for name in os.listdir("/dev/fd"):
        if int(name) > 2 and int(name) != kept:
            with contextlib.suppress(OSError):
                os.close(int(name))


class _Guard:
    def __init__(self, start: StartData, rank: int, folder: ClusterFolder, engine: int) -> None:
        self._start = start
        self._rank = rank
        self._folder = folder
        self._engine = engine
        self._above = _above(engine)
        self._told: dict[str, Any] = {}
        self._log_size = -1

    def run(self, answer: int) -> None:
        """Guard the engine until it ends, or its cluster does."""
        print_to(self._folder.log("guard"))
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a batch system's is for all of a job
        held = lifeline.hold(self._folder.lifeline)
        wire, answered = self._link()
        with os.fdopen(answer, "w") as pipe:
            pipe.write(json.dumps(answered) + "\n")
        if wire is None:
            return
        is_open = self._watch(wire)
        os.close(held)  # now the engine knows
        self._end_engine(ENGINE_GRACE_S)
        if is_open and self._take_leave(wire):
            return
        if wire.is_silent(self._start.silence_s):
            self._end_above()

    def _link(self) -> tuple[Wire | None, dict[str, str]]:
        """Reach the supervisor by one of its addresses, and keep the controller's file."""
        failures = []
        for address, port in self._start.ways:
            try:
                connection = socket.create_connection((address, port), self._start.silence_s)
            except OSError as error:
                failures.append(f"{address} port {port}: {error.strerror or error}")
                continue
            wire = Wire(connection, self._start.token, is_supervisor=False)
            wire.send("hello", rank=self._rank, host=socket.gethostname())
            by_address = self._start.connection_by(address)
            runtime.write_private(self._folder.engine_file, json.dumps(by_address))
            return wire, {"address": connection.getsockname()[0]}
        reason = (
            f"{socket.gethostname()} can't reach the host that starts the ranks "
            f"({'; '.join(failures)}): all TCP ports between the hosts must be open, also for what "
            "MPI sends; look at their firewalls"
        )
        return None, {"failure": reason}

    def _watch(self, wire: Wire) -> bool:
        """Wait for the end of the engine or of the cluster; whether the link is still there."""
        beat_at, end_at, turned_at = 0.0, None, time.monotonic()
        while True:
            gap_s, turned_at = time.monotonic() - turned_at, time.monotonic()
            wire.overlook(gap_s)
            try:
                if select.select([wire.connection], [], [], TURN_S)[0]:
                    for message in wire.receive():
                        if message["what"] == "end" and end_at is None:
                            send_signal(self._engine, signal.SIGTERM)
                            end_at = time.monotonic() + END_WAIT_S
            except (EOFError, ConnectionError):
                return False
            except OSError:
                traceback.print_exc()  # silence will tell
                time.sleep(TURN_S)
            now = time.monotonic()
            if not self._lives() or (end_at is not None and now > end_at):
                return True
            if wire.is_silent(self._start.silence_s):
                return False
            with contextlib.suppress(OSError):
                if now >= beat_at:
                    beat_at = now + BEAT_S
                    wire.send("beat")
                    self._pass_on_log(wire)
                self._pass_on_report(wire)

    def _take_leave(self, wire: Wire) -> bool:
        """Say that the engine has ended; whether the supervisor is still there to hear it."""
        with contextlib.suppress(OSError):
            self._pass_on_report(wire)
            self._pass_on_log(wire)
            self._pass_on_end(wire)
            wire.send("left")
        left_at = time.monotonic()
        while not wire.is_silent(self._start.silence_s):
            try:
                if select.select([wire.connection], [], [], TURN_S)[0]:
                    wire.receive()
            except (EOFError, ConnectionError):
                return True
            except OSError:
                time.sleep(TURN_S)
            if wire.heard_at > left_at:
                return True
        return False

    def _pass_on_report(self, wire: Wire) -> None:
        note = self._folder.reports().get(self._rank)
        if note is not None and note != self._told:
            self._told = note
            wire.send("report", note=note)

    def _pass_on_log(self, wire: Wire) -> None:
        name = f"rank-{self._rank}"
        with contextlib.suppress(FileNotFoundError):
            size = self._folder.log(name).stat().st_size
            if size != self._log_size:
                self._log_size = size
                wire.send("log", text=self._folder.log_tails().get(name, "")[-LOG_TAIL_BYTES:])

    def _pass_on_end(self, wire: Wire) -> None:
        """How the engine has ended; its warden notes it at once. Clocks of hosts may differ."""
        deadline = time.monotonic() + WARDEN_S
        while (note := self._folder.endings().get(self._rank)) is None:
            if time.monotonic() > deadline:
                return
            time.sleep(0.01)
        age_s = time.time() - note["time"]
        wire.send("ended", pid=note["pid"], code=note["code"], age_s=age_s)

    def _lives(self) -> bool:
        return os.getppid() == self._engine

    def _end_engine(self, grace_s: float) -> None:
        """Kill the engine, and what it has started, if it does not end by itself."""
        family: list[psutil.Process] = []
        with contextlib.suppress(psutil.Error):
            engine = psutil.Process(self._engine)
            family = [engine] if self._lives() else []
        deadline = time.monotonic() + grace_s
        while self._lives() and time.monotonic() < deadline:
            with contextlib.suppress(psutil.Error):
                family = [*family[:1], *family[0].children(recursive=True)]
            time.sleep(TURN_S)
        for process in family:
            with contextlib.suppress(psutil.Error):
                if process.pid != os.getpid():
                    process.kill()
        # mpiexec may have killed the warden, which would do it.
        warden.end_orphans(lambda: away.processes(self._folder))

    def _end_above(self) -> None:
        """End MPI's daemon and the ssh session that have started the engine on this host."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in self._above:
                with contextlib.suppress(psutil.Error):
                    process.send_signal(number)
            _, alive = psutil.wait_procs(self._above, timeout=1)
            if not alive:
                return


def _above(engine: int) -> list[psutil.Process]:
    """MPI's daemon right above an engine, and the ssh session that has started the daemon.

    Both serve this cluster alone. What a batch system has started is left to it.
    """
    daemons: list[psutil.Process] = []
    shells: list[psutil.Process] = []
    with contextlib.suppress(psutil.Error):
        _warden, *parents = psutil.Process(engine).parents()
        for process in parents:
            if process.name() in DAEMONS and not shells:
                daemons.append(process)
            elif process.name() in SHELLS and daemons:
                shells.append(process)
            elif daemons and _SSH_SESSION.match(" ".join(process.cmdline())):
                return [*daemons, *shells, process]
            else:
                break
    return daemons
