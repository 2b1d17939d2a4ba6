"""The way to the engines of a cluster: a client, and which engine is which rank."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tutorial_lib.cluster import readiness
from tutorial_lib.cluster.control_channel import ControlChannel, Engine
from tutorial_lib.cluster.errors import ClusterError, MpiError
from tutorial_lib.cluster.profiles import profile_folders, profile_names
from tutorial_lib.cluster.rank_call import RankCall, ignore
from tutorial_lib.cluster.runtime import running
from tutorial_lib.cluster.values import decode

HUB_TIMEOUT_S = 5.0
PING_INTERVAL_S = 2.0
AGAIN_S = 5.0  # a message to a rank that is not yet connected to all of the controller is lost
SILENCE_S = 10.0  # a controller that has not answered for so long is taken for dead

Why = Callable[[], str]


@dataclass(frozen=True)
class RankInfo:
    """What a rank says of itself when it joins.

    Attributes:
        rank: In MPI.COMM_WORLD.
        engine_id: ipyparallel's number for it.
        host: Name of its host.
        pid: Its process.
        cores: Cores it may use.
        threads: Threads of its numerical libraries.
        mpi: Its MPI library.
        log: File on its host with all that it prints; "" if unknown.
    """

    rank: int
    engine_id: int
    host: str
    pid: int
    cores: int
    threads: int
    mpi: str
    log: str


@dataclass(frozen=True)
class Connection:
    """A client whose engines are all ready.

    Attributes:
        client: ipyparallel's.
        engines: By rank.
        information: By rank.
        why_dead: Says why the cluster is gone, or "" while it lives.
        close: Ends the connection, and the cluster if it is ours.
        first_death: Says, when a rank has died, which rank did so first and why, if that is known.
    """

    client: Any
    engines: dict[int, Engine]
    information: dict[int, RankInfo]
    why_dead: Why
    close: Callable[[], None]
    first_death: Callable[[int], tuple[int, str]] = lambda rank: (rank, "")


@dataclass(frozen=True)
class RunningCluster:
    """A cluster of this user that some other process has started.

    Attributes:
        client_file: How to reach its controller.
        origin: Who started it, in words.
        lifeline: Held by its supervisor; None when nothing but its controller tells that it lives.
        is_job: Whether its ranks are a batch job, which may be ended from outside.
    """

    client_file: Path
    origin: str
    lifeline: Path | None = None
    is_job: bool = False


def running_clusters(profile: str | None) -> list[RunningCluster]:
    """The clusters of a profile that outlive who started them: candidates to join.

    Args:
        profile: Its name; None for all profiles that there are.
    """
    found = []
    for folder, record in running(profile):
        if record.owner is None and record.python == sys.prefix:
            origin = "started by `gan-tutorial cluster start`"
            found.append(RunningCluster(folder.client_file, origin, folder.lifeline, record.is_job))
    names = profile_names() if profile is None else [profile]
    for configured in (folder for name in names for folder in profile_folders(name)):
        paths = sorted((configured / "security").glob("ipcontroller*-client.json"))
        found += [RunningCluster(path, "started by ipcluster") for path in paths]
    return found


def open_client(client_file: Path, timeout_s: float) -> Any:
    """Connect to a controller.

    Args:
        client_file: Its connection file.
        timeout_s: How long it may take to answer, in seconds.

    Returns:
        ipyparallel's client.

    Raises:
        OSError: There is no such file, or no controller behind it.
        ValueError: The file isn't whole.
    """
    from ipyparallel.client.client import Client

    information = json.loads(client_file.read_text(encoding="utf-8"))
    folder = str(client_file.parents[1])
    return Client(information, profile_dir=folder, timeout=timeout_s)


def registered(client: Any, timeout_s: float = HUB_TIMEOUT_S) -> dict[int, str]:
    """Ask the controller which engines it knows.

    The client hears of new engines by itself, but misses those that register while it connects.

    Args:
        client: ipyparallel's.
        timeout_s: How long the controller may take, in seconds.

    Returns:
        The engines' names by their number.

    Raises:
        ClusterError: The controller does not answer.
    """
    future = client._send(client._query_stream, "connection_request")
    if not future.wait(timeout_s):
        raise ClusterError(f"the controller did not answer within {timeout_s:.0f} s")
    engines = {int(number): uuid for number, uuid in future.result()["content"]["engines"].items()}
    client._update_engines(engines)
    return engines


def join(
    client: Any, known: dict[int, str], why_dead: Why, timeout_s: float
) -> tuple[dict[int, Engine], dict[int, RankInfo]]:
    """Have all engines pass an all-reduce together, and learn which is which rank.

    Args:
        client: ipyparallel's.
        known: The engines' names by number.
        why_dead: Says why the cluster is gone, or "".
        timeout_s: How long it may take, in seconds.

    Returns:
        Engines and what they say of themselves, by rank.

    Raises:
        MpiError: The engines are not the ranks of one MPI world.
        ClusterError: An engine failed, or is busy.
    """
    anonymous = {number: Engine(number, number, uuid) for number, uuid in known.items()}

    def ask(
        again_s: float, function: Callable[..., Any], *arguments: object
    ) -> dict[int, dict[str, Any]]:
        calls: list[RankCall] = []
        answers: dict[int, dict[str, Any]] = {}
        deadline = time.monotonic() + timeout_s
        while silent := {k: engine for k, engine in anonymous.items() if k not in answers}:
            left_s = deadline - time.monotonic()
            if left_s <= 0 or any(answer["status"] != "ok" for answer in answers.values()):
                break
            calls.append(RankCall(ControlChannel(client, silent), ignore, why_dead))
            calls[-1].wait(min(again_s, left_s), work=(function, *arguments))
            for call in calls:  # the first may be the one that is answered
                call.collect()
                answers = {**call.answers, **answers}
        for call in calls:
            call.abandon()
        for number, answer in answers.items():
            if answer["status"] != "ok":
                raise ClusterError(f"engine {number}: {answer['name']}: {answer['message']}")
        if silent:
            raise ClusterError(f"engine {min(silent)} is busy or stuck")
        return {number: decode(answer) for number, answer in answers.items()}

    places = ask(AGAIN_S, readiness.place)  # the second time it does nothing new
    _check_world(places)
    information = {
        place["rank"]: RankInfo(engine_id=number, **{k: v for k, v in place.items() if k != "size"})
        for number, place in places.items()
    }
    ask(timeout_s, readiness.meet, os.getcwd())
    engines = {
        rank: Engine(rank, info.engine_id, known[info.engine_id])
        for rank, info in sorted(information.items())
    }
    return engines, dict(sorted(information.items()))


def _check_world(places: dict[int, dict[str, Any]]) -> None:
    n = len(places)
    sizes = sorted({place["size"] for place in places.values()})
    if sizes != [n] or {place["rank"] for place in places.values()} != set(range(n)):
        raise MpiError(
            f"{n} engines are not {n} ranks of one MPI world, but of "
            f"{' and '.join(map(str, sizes))} rank{'' if sizes == [1] else 's'}"
        )


class HubPing:
    """Finds out whether a controller that isn't ours still answers.

    Args:
        client: ipyparallel's.
        why_dead: What is known without asking.
    """

    def __init__(self, client: Any, why_dead: Why) -> None:
        self._client = client
        self._known = why_dead
        self._future: Any = None
        self._asked_at = 0.0

    def __call__(self) -> str:
        """Why the cluster is gone, or ""."""
        if reason := self._known():
            return reason
        now = time.monotonic()
        if self._future is not None and not self._future.done():
            silence_s = now - self._asked_at
            return "the controller does not answer any more" if silence_s > SILENCE_S else ""
        if now - self._asked_at > PING_INTERVAL_S:
            with contextlib.suppress(OSError):
                self._future = self._client._send(self._client._query_stream, "connection_request")
                self._asked_at = now
        return ""
