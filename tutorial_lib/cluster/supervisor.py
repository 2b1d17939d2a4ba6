"""The small process that starts a cluster, watches it, and leaves nothing of it behind.

    python -m tutorial_lib.cluster.supervisor FOLDER

It lives in a session of its own, so that no terminal's Ctrl-C and no kernel's interrupt reaches
it. Its standard input is a pipe from its owner: when that closes, or the owner is gone, or the
controller or the ranks end, or it is told to stop by SIGTERM, it ends everything it has started,
removes the cluster's folder, and ends. Should it be killed itself, controller and engines notice
by its lifeline. To its owner it writes one JSON object a line.

Ranks that may be on other hosts are linked to it (see ``remote``).
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import FrameType

import psutil

from tutorial_lib.cluster import job_note, lifeline, obituary, stop_limits
from tutorial_lib.cluster.process import adopt_orphans, send_signal
from tutorial_lib.cluster.remote import away
from tutorial_lib.cluster.remote.start_data import FILE_VARIABLE
from tutorial_lib.cluster.remote.switchboard import SUSPECT_S, Switchboard
from tutorial_lib.cluster.runtime import FOLDER_VARIABLE, ClusterFolder

POLL_S = 0.1
TOLD_TO_END = (0, -signal.SIGTERM)  # how a process ends that is told to
LEFT_S = 0.7  # for mpiexec to end with a rank, and say why


class Supervisor:
    """Starts, watches and ends the processes of one cluster.

    Args:
        folder: The cluster's folder.
    """

    def __init__(self, folder: ClusterFolder) -> None:
        self.folder = folder
        self.record = replace(folder.read_record(), supervisor=os.getpid())
        self.is_told_to_stop = False
        self.ended: dict[int, int] = {}  # process id -> exit code, of those started here
        self._pids: dict[int, int] = {}  # by rank
        self._left_at: float | None = None  # when a rank's end was first seen
        self._links: Switchboard | None = None

    def run(self) -> None:
        """Supervise until there is a reason to end, then end everything."""
        held = lifeline.hold(self.folder.lifeline)
        self.folder.write_record(self.record)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        adopt_orphans()
        controller = engines = None
        unready = ""
        reason = "its supervisor has failed"
        try:
            controller = self._start("controller", self.record.controller_command)
            if self.record.addresses:
                self._links = Switchboard(self.folder, self.record.addresses, self.record.silence_s)
                unready = self._watch(controller)
            if unready:
                reason = unready
            else:
                engines = self._start("mpiexec", self.record.engines_command)
                self._tell("started", controller=controller, mpiexec=engines)
                reason = self._watch(controller, engines)
        except OSError as error:
            reason = str(error)
        finally:
            lifeline.leave_word(held, reason)
            self._tell(
                "ending",
                reason=reason,
                logs=self.folder.log_tails(),
                reports=self.folder.reports(),
                endings=self.folder.endings(),
            )
            self._end_all(controller, engines)
            self.folder.remove()
            os.close(held)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.is_told_to_stop = True

    def _start(self, name: str, command: list[str]) -> int:
        with self.folder.log(name).open("ab") as log:
            log.write(f"$ {shlex.join(command)}\n".encode())
            log.flush()
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={
                    **os.environ,
                    FOLDER_VARIABLE: str(self.folder.path),
                    "IPYTHONDIR": str(self.folder.path / "ipython"),
                    **(self._start_data() if name == "mpiexec" else {}),
                },
            )
        process.returncode = 0  # reaped here, not by Popen
        return process.pid

    def _start_data(self) -> dict[str, str]:
        """What linked ranks must know; whatever starts them hands the variable on."""
        if self._links is None:
            return {}
        file = self.record.environment.get(FILE_VARIABLE, "")
        return self._links.start_data().hand_over(self.folder, file)

    def _watch(self, controller: int, engines: int | None = None) -> str:
        """Wait for a reason to end; without engines, for the controller to be ready too."""
        owner_pipe = [sys.stdin.fileno()] if self.record.owner is not None else []
        while True:
            readable, _, _ = select.select(owner_pipe, [], [], POLL_S)
            if readable:
                os.read(readable[0], 1024)
                return "its owner has stopped it"
            if self.record.owner is not None and os.getppid() != self.record.owner:
                return "its owner has ended"
            if self.is_told_to_stop:
                return "it has been told to stop"
            self._reap()
            if controller in self.ended:
                return f"its controller has ended with {_status(self.ended[controller])}"
            if engines is None:
                with contextlib.suppress(OSError, ValueError):  # not there, or half written
                    json.loads(self.folder.engine_file.read_text(encoding="utf-8"))
                    return ""
                continue
            if reason := self._lost(engines):
                return reason
            if engines in self.ended:
                code = self.ended[engines]
                log = self.folder.log_tails().get("mpiexec", "")
                why = self._job_end(engines)
                what = "the job of the ranks" if self.record.is_job else "mpiexec"
                status = f"{what} has ended with {_status(code)}"
                self._tell("ranks ended", code=code, status=status, log=log, why=why)
                time.sleep(stop_limits.NOTIFICATION_S)
                # If mpiexec was killed or told to end, so were the ranks, by it.
                return why or (self._first_death(TOLD_TO_END) if code >= 0 else "") or status
            if (rank := self._rank_that_left()) is not None:
                status = f"rank {rank}'s process has ended"
                why = self._job_end(engines)
                self._tell("ranks ended", code=0, status=status, log="", why=why)
                time.sleep(stop_limits.NOTIFICATION_S)
                return why or self._first_death() or status

    def _first_death(self, orderly: tuple[int, ...] = ()) -> str:
        """Which rank died first, and why, by the wardens' notes; "" if its end was orderly."""
        if not (notes := self.folder.endings()):
            return ""
        rank = obituary.earliest(notes)
        if (code := notes[rank]["code"]) in orderly:
            return ""
        host = self.folder.reports().get(rank, {}).get("host")
        place = f" on {host}" if host else ""
        return f"rank {rank}{place} has died ({obituary.in_words(code)})"

    def _job_end(self, launcher: int) -> str:
        """Why a batch job has ended, if not because its ranks have; else ""."""
        if not self.record.is_job:
            return ""
        send_signal(launcher, signal.SIGUSR1)  # it looks at the job now
        deadline = time.monotonic() + stop_limits.JOB_NEWS_S
        while not (why := job_note.read(self.folder).why_ended):
            self._reap()
            if launcher in self.ended or time.monotonic() > deadline:
                return job_note.read(self.folder).why_ended
            time.sleep(POLL_S)
        return why

    def _rank_that_left(self) -> int | None:
        """A rank that has ended with status 0, which some mpiexec don't mind; None if none has."""
        if self._links is not None:
            left = self._links.rank_that_left()
            gone = [] if left is None else [left]
        else:
            if len(self._pids) < self.record.n:
                self._pids = {rank: note["pid"] for rank, note in self.folder.reports().items()}
            gone = [rank for rank, pid in self._pids.items() if not psutil.pid_exists(pid)]
        if not gone:
            self._left_at = None
            return None
        now = time.monotonic()
        self._left_at = self._left_at or now
        return gone[0] if now - self._left_at > LEFT_S else None

    def _lost(self, engines: int) -> str:
        """Which ranks the network has cut off, or ""; who ends meanwhile, ends because of it."""
        if self._links is None:
            return ""
        is_over = engines in self.ended or self._links.rank_that_left() is not None
        return self._links.silent(SUSPECT_S if is_over else self.record.silence_s)

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                self.ended[pid] = os.waitstatus_to_exitcode(status)

    def _end_all(self, controller: int | None, engines: int | None) -> None:
        """Engines first, so that MPI and the process group go down in order."""
        if self._links is not None:
            self._links.end_ranks()
        ours = {process.pid for process in _descendants()}
        for report in self.folder.reports().values():
            if report["pid"] in ours and "host" not in report:
                send_signal(report["pid"], signal.SIGTERM)
        if engines is not None and self.record.is_job:
            is_queued = job_note.read(self.folder).is_waiting
            # Told to look, it sees the job end at once.
            send_signal(engines, signal.SIGTERM if is_queued else signal.SIGUSR1)
        if engines is not None and not self._wait(engines, stop_limits.ENGINES_GRACE_S):
            send_signal(engines, signal.SIGTERM)
            self._wait(engines, stop_limits.KILL_GRACE_S)
        self._withdraw(engines)
        if controller is not None:
            send_signal(controller, signal.SIGTERM)
            self._wait(controller, stop_limits.CONTROLLER_GRACE_S)
        if self._links is not None:
            self._links.close()  # now guards end too
        guards_s = stop_limits.GUARDS_GRACE_S if self._links is not None else 0.0
        deadline = time.monotonic() + guards_s + stop_limits.KILL_GRACE_S
        # A process that ends while they are listed hides its children from that look.
        while (left := _descendants() or _descendants()) and time.monotonic() < deadline:
            if time.monotonic() > deadline - stop_limits.KILL_GRACE_S:
                for process in left:
                    send_signal(process.pid, signal.SIGKILL)
            time.sleep(0.01)
            self._reap()
        away.remove_all(self.folder)

    def _withdraw(self, launcher: int | None) -> None:
        """Cancel a batch job by its name, whether or not its launcher did, or knew its number."""
        if not self.record.is_job or launcher is None:
            return
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run(
                self.record.withdraw,
                capture_output=True,
                timeout=stop_limits.WITHDRAW_S,
                check=False,
            )

    def _wait(self, pid: int, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._reap()
            if pid in self.ended:
                return True
            time.sleep(0.01)
        return False

    def _tell(self, event: str, **details: object) -> None:
        """Tell the owner, if it still listens."""
        with contextlib.suppress(OSError, ValueError):
            print(json.dumps({"event": event, **details}), flush=True)


def _descendants() -> list[psutil.Process]:
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def _status(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"


def main() -> None:
    """Supervise the cluster whose folder is the first argument."""
    Supervisor(ClusterFolder(Path(sys.argv[1]))).run()


if __name__ == "__main__":
    main()
