"""A SLURM of one node for tests: munge, controller and node daemon, in a folder of their own."""

from __future__ import annotations

import contextlib
import getpass
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from tutorial_lib.cluster import Cluster

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "srun", "scancel")
READY_S = 60.0
END_S = 15.0
CORES = 4  # as SLURM is to believe

CONFIGURATION = """\
ClusterName=tutorial
FirstJobId={first_job}
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MailProg=/bin/true
ReturnToService=2
KillWait=5
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2,sched_min_interval=200000
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


@dataclass(frozen=True)
class Job:
    """A job of the queue: its number, name and state."""

    number: int
    name: str
    state: str


@dataclass(frozen=True)
class Site:
    """A running SLURM."""

    folder: Path

    @property
    def configuration(self) -> Path:
        return self.folder / "slurm.conf"

    def run(self, *command: str) -> str:
        done = subprocess.run(
            command,
            env={**os.environ, "SLURM_CONF": str(self.configuration)},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def queue(self) -> list[Job]:
        lines = self.run("squeue", "--noheader", "--format=%i|%j|%T").splitlines()
        return [Job(int(i), name, state) for i, name, state in (x.split("|") for x in lines)]

    def node_is_idle(self) -> bool:
        with contextlib.suppress(AssertionError, subprocess.TimeoutExpired):
            return self.run("sinfo", "--noheader", "--format=%T").strip() == "idle"
        return False

    def clear(self) -> None:
        """Take all jobs out of the queue, and bring the node back."""
        self.run("scancel", f"--user={os.getuid()}")
        with contextlib.suppress(AssertionError):
            self.run("scontrol", "update", f"NodeName={host()}", "State=RESUME")
        deadline = time.monotonic() + 30
        while self.queue() or not self.node_is_idle():
            assert time.monotonic() < deadline, self.queue()
            time.sleep(0.2)


def missing() -> str:
    """Why there can't be a SLURM here; "" if there can."""
    if lacking := [name for name in PROGRAMS if _find(name) is None]:
        return f"no {', '.join(lacking)}: apt install slurm-wlm munge"
    return "" if os.geteuid() == 0 else "SLURM's daemons start jobs of other users: needs root"


@contextlib.contextmanager
def running() -> Iterator[Site]:
    """Start it all; stop it all."""
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    folder.chmod(0o755)
    site = Site(folder)
    for name in ("state", "spool", "munge", "log"):
        (folder / name).mkdir(mode=0o755)
    ports = _free_ports(2)
    site.configuration.write_text(
        CONFIGURATION.format(
            host=host(),
            folder=folder,
            user=getpass.getuser(),
            cores=CORES,
            # What a killed job leaves in /dev/shm has its number in its name.
            first_job=secrets.randbelow(60_000) + 1000,
            controller_port=ports[0],
            node_port=ports[1],
        )
    )
    key = folder / "munge" / "key"
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o600)
    munge = [
        *("munged", "--foreground", "--force", f"--key-file={key}"),
        *(f"--{name}-file={folder}/munge/{name}" for name in ("pid", "log", "seed")),
        f"--socket={folder}/munge/socket",
    ]
    daemons: list[subprocess.Popen[bytes]] = []
    try:
        daemons.append(_start(munge, folder))
        daemons.append(_start(["slurmctld", "-D", "-f", str(site.configuration)], folder))
        daemons.append(_start(["slurmd", "-D", "-f", str(site.configuration)], folder))
        deadline = time.monotonic() + READY_S
        while not site.node_is_idle():
            gone = [d.args for d in daemons if d.poll() is not None]
            assert not gone, f"{gone} ended: {_logs(folder)}"
            assert time.monotonic() < deadline, f"no node after {READY_S} s: {_logs(folder)}"
            time.sleep(0.2)
        yield site
        site.clear()
    finally:
        for daemon in reversed(daemons):
            _end(daemon)
        for process in _left(folder):
            with contextlib.suppress(psutil.Error):
                process.kill()
        shutil.rmtree(folder, ignore_errors=True)


def host() -> str:
    """The name of this host as SLURM takes it."""
    return socket.gethostname().split(".")[0]


def _start(command: list[str], folder: Path) -> subprocess.Popen[bytes]:
    name = command[0]
    with (folder / "log" / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            [_find(name) or name, *command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, "SLURM_CONF": str(folder / "slurm.conf")},
        )


def _end(daemon: subprocess.Popen[bytes]) -> None:
    daemon.terminate()
    try:
        daemon.wait(END_S)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()


def _left(folder: Path) -> list[psutil.Process]:
    """Processes that still name the folder: a step's own daemon, for one."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            variables = process.environ().get("SLURM_CONF", "")
            words = [variables, *process.cmdline()]
            if process.pid != os.getpid() and any(str(folder) in word for word in words):
                found.append(process)
    return found


def _find(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as opened:
        servers = [opened.enter_context(socket.create_server(("", 0))) for _ in range(count)]
        return [server.getsockname()[1] for server in servers]


def _logs(folder: Path) -> str:
    return "\n".join(path.read_text(errors="replace")[-2000:] for path in folder.glob("log/*.log"))


def cluster(**options: object) -> Cluster:
    """A cluster whose ranks are a job here; two of them unless the options say otherwise."""
    options = {"n": 2, "attach": False, "process_group": False, **options}
    return Cluster(profile="slurm", **options)  # type: ignore[arg-type]


def later(work: Callable[[], object], seconds: float = 1.5) -> threading.Thread:
    """Do something while a cell runs."""
    timer = threading.Timer(seconds, work)
    timer.start()
    return timer
