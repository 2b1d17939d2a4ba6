"""A cluster as who starts it sees it: what is to run, and the supervisor that runs it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from tutorial_lib.cluster import runtime
from tutorial_lib.cluster.hosts import addresses_towards
from tutorial_lib.cluster.launch import Hosts, plan_launch
from tutorial_lib.cluster.profiles import profile_folder
from tutorial_lib.cluster.runtime import ClusterFolder, ClusterRecord
from tutorial_lib.cluster.stop_limits import STOP_TIMEOUT_S

# -P: a reader's own file, random.py for example, must not stand in for Python's.
PYTHON = (sys.executable, "-P", "-m")
POLL_S = 0.02


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
