"""``with Cluster(n=2) as ranks:`` starts MPI ranks for this process, or joins running ones."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import threading
import time
from typing import Any

from tutorial_lib.cluster import mpi_flavour, runtime
from tutorial_lib.cluster.errors import MpiError, StartError
from tutorial_lib.cluster.profiles import profile_folder
from tutorial_lib.cluster.rank_call import Engine, RankCall
from tutorial_lib.cluster.ranks import RankInfo, Ranks
from tutorial_lib.cluster.runtime import ClusterFolder, ClusterRecord

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0
CONNECT_TIMEOUT_S = 5.0
POLL_S = 0.02

_started: dict[str, Cluster] = {}  # by profile, what start() has started in this process


class Cluster:
    """Some MPI ranks that run what a notebook gives them.

    A running cluster of the profile with enough ranks is joined, and left running at the end.
    Otherwise one is started that belongs to this process and ends with it, however it ends.

    Args:
        n: Number of ranks.
        profile: Name of the profile in ``cluster_profiles/``.
        timeout_s: How long starting may take, in seconds.
        attach: Whether to join a running cluster of the profile.
    """

    def __init__(
        self,
        n: int = 2,
        profile: str = "mpi",
        *,
        timeout_s: float = START_TIMEOUT_S,
        attach: bool = True,
    ) -> None:
        if n < 1:
            raise ValueError(f"n={n}: a cluster has at least one rank")
        self.n = n
        self.profile = profile
        self.timeout_s = timeout_s
        self.attach = attach
        self.ranks: Ranks | None = None

    def start(self) -> Ranks:
        """Start, or join, the ranks; running the cell again reuses what runs.

        Returns:
            The ranks, ready: all have passed an all-reduce.

        Raises:
            StartError: They did not come up: the message says which rank, and why.
            MpiError: There is no MPI, or it does not fit mpi4py.
        """
        previous = _started.get(self.profile)
        if previous is not None and previous.ranks is not None and previous.ranks.is_open:
            if previous.n == self.n and not previous.ranks._why_dead():
                print(f"{self.n} ranks are running already")
                self.ranks = previous.ranks
                return previous.ranks
            previous.ranks.stop()
        ranks = self._open()
        _started[self.profile] = self
        return ranks

    def stop(self) -> None:
        """End the ranks, if they were started here, or leave them."""
        if self.ranks is not None:
            self.ranks.stop()

    def __enter__(self) -> Ranks:
        return self._open()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _open(self) -> Ranks:
        self.ranks = self._start_own()
        _register_magics(self.ranks)
        return self.ranks

    def _start_own(self) -> Ranks:
        began = time.monotonic()
        flavour = mpi_flavour.detect()
        folder = launch(self.n, self.profile, flavour, owner=os.getpid())
        owned = OwnedProcess(folder)
        try:
            client = connect(folder, owned, began + self.timeout_s)
            try:
                engines, information = join(client, self.n, owned, began + self.timeout_s)
            except BaseException:
                client.close()
                raise
        except BaseException:
            owned.stop()
            raise

        def stop() -> None:
            client.close()
            owned.stop()

        threads = information[0].threads
        print(
            f"{self.n} ranks ready in {time.monotonic() - began:.1f} s: {flavour}, "
            f"{threads} thread{'s' if threads > 1 else ''} each"
        )
        return Ranks(client, engines, information, stop, owned.why_dead)


def launch(n: int, profile: str, flavour: mpi_flavour.MpiFlavour, owner: int | None) -> Any:
    """Make the folder of a new cluster, with the record of what is to run."""
    configuration = profile_folder(profile)
    folder = runtime.create(profile)
    here = f"--profile-dir={folder.path}"

    def program(module: str, config: str, *options: str) -> list[str]:
        config_option = f"--config={configuration / config}"
        return [sys.executable, "-m", module, *options, here, config_option]

    folder.write_record(
        ClusterRecord(
            profile=profile,
            n=n,
            mpi=str(flavour),
            controller_command=program("tutorial_lib.cluster.controller", "ipcontroller_config.py"),
            engines_command=flavour.command(
                n, *program("tutorial_lib.cluster.engine", "ipengine_config.py", "--mpi")
            ),
            owner=owner,
        )
    )
    return folder


class OwnedProcess:
    """The supervisor of a cluster that belongs to this process.

    Args:
        folder: The cluster's, with its record.
    """

    def __init__(self, folder: ClusterFolder) -> None:
        self.folder = folder
        self.record = folder.read_record()
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tutorial_lib.cluster.supervisor", str(folder.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env=environment,
        )
        self._reason = ""
        self.events: list[dict[str, Any]] = []
        self._listener = threading.Thread(target=self._listen, name="supervisor", daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                event = json.loads(line)
                if "reason" in event:
                    self._reason = event["reason"]
                self.events.append(event)
        self._reason = self._reason or "the supervisor has ended"

    def why_dead(self) -> str:
        """Why the cluster is gone, or "" while it lives."""
        return self._reason

    def stop(self) -> None:
        """End the cluster and wait until nothing of it is left."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._listener.join(STOP_TIMEOUT_S)
        self.folder.remove()


def connect(folder: ClusterFolder, owned: OwnedProcess, deadline: float) -> Any:
    """Connect to the controller as soon as it is there."""
    import ipyparallel

    while True:
        try:
            information = json.loads(folder.client_file.read_text(encoding="utf-8"))
            break
        except (OSError, ValueError):
            _check(folder, owned, deadline, "the controller did not start")
            time.sleep(POLL_S)
    return ipyparallel.Client(
        information, profile_dir=str(folder.path), timeout=max(1.0, deadline - time.monotonic())
    )


def _check(folder: ClusterFolder, owned: OwnedProcess, deadline: float, what: str) -> None:
    """Raise when starting has failed or takes too long."""
    if reason := owned.why_dead():
        raise StartError(_explain(folder, owned.record, f"{what}: {reason}", owned))
    if time.monotonic() > deadline:
        raise StartError(_explain(folder, owned.record, f"{what} in time", owned))


def _explain(folder: ClusterFolder, record: ClusterRecord, what: str, owned: OwnedProcess) -> str:
    parts = [what]
    for rank, note in folder.reports().items():
        parts.append(f"rank {rank} (process {note['pid']}): {note['stage']}")
    for event in owned.events:
        if event.get("log"):
            parts.append(event["log"])
    for name in ["controller", "mpiexec", *(f"rank-{rank}" for rank in range(record.n))]:
        if tail := folder.log_tail(name):
            parts.append(f"--- {name}.log\n{tail}")
    parts.append(f"command: {shlex.join(record.engines_command)}")
    return "\n".join(parts)


def join(
    client: Any, n: int, owned: OwnedProcess, deadline: float
) -> tuple[dict[int, Engine], dict[int, RankInfo]]:
    """Wait until n engines have registered and passed an all-reduce together."""
    from tutorial_lib.cluster import readiness

    while True:
        known = registered(client, deadline)
        if len(known) >= n:
            break
        _check(owned.folder, owned, deadline, f"only {len(known)} of {n} ranks came up")
        time.sleep(POLL_S)
    engines = {engine_id: Engine(engine_id, engine_id, uuid) for engine_id, uuid in known.items()}
    call = RankCall(client, engines, lambda rank, message: None, owned.why_dead)
    call.send(readiness.join, n)
    answers = call.wait(max(1.0, deadline - time.monotonic()))
    information = {}
    for engine_id, answer in answers.items():
        if answer["status"] != "ok":
            raise StartError(
                _explain(
                    owned.folder, owned.record, f"engine {engine_id}: {answer['message']}", owned
                )
            )
        if answer["size"] != n:
            raise MpiError(
                f"the ranks are not in one MPI world: {owned.record.mpi} started {n} processes, "
                f"but mpi4py uses {answer['mpi']}, which sees a world of {answer['size']}. "
                "mpiexec and mpi4py must belong to the same MPI."
            )
        information[answer["rank"]] = RankInfo(
            engine_id=engine_id,
            **{k: answer[k] for k in ("rank", "host", "pid", "cores", "threads", "mpi")},
        )
    by_rank = {
        rank: Engine(rank, info.engine_id, known[info.engine_id])
        for rank, info in information.items()
    }
    return by_rank, information


def registered(client: Any, deadline: float) -> dict[int, str]:
    """Ask the controller for the engines it knows, by id."""
    future = client._send(client._query_stream, "connection_request")
    if not future.wait(max(0.1, deadline - time.monotonic())):
        raise StartError("the controller does not answer")
    engines = future.result()["content"]["engines"]
    client._update_engines(engines)
    return {int(engine_id): uuid for engine_id, uuid in engines.items()}


def _register_magics(ranks: Ranks) -> None:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is not None:
        from tutorial_lib.cluster.magics import RanksMagics

        shell.register_magics(RanksMagics)
        view = ranks.view
        view.block = True
        view.activate()  # %%px on these ranks
