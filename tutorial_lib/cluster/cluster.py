"""``with Cluster(n=2) as ranks:`` starts MPI ranks for this process, or joins running ones."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable
from numbers import Integral
from typing import Any

from tutorial_lib.cluster import job_note, lifeline
from tutorial_lib.cluster.connection import (
    Connection,
    HubPing,
    RunningCluster,
    Why,
    join,
    open_client,
    registered,
    running_clusters,
)
from tutorial_lib.cluster.dispatcher import HANG_LIMIT_S, TIMEOUT_S, Options
from tutorial_lib.cluster.errors import ClusterError
from tutorial_lib.cluster.launch import Hosts
from tutorial_lib.cluster.live_line import LiveLine
from tutorial_lib.cluster.obituary import first_death
from tutorial_lib.cluster.ranks import Ranks
from tutorial_lib.cluster.runtime import ClusterFolder
from tutorial_lib.cluster.startup import start
from tutorial_lib.cluster.whereabouts import Whereabouts, count

START_TIMEOUT_S = 60.0
ATTACH_TIMEOUT_S = 3.0

PROFILE_VARIABLE = "GAN_TUTORIAL_PROFILE"
DEFAULT_PROFILE, HOSTS_PROFILE = "mpi", "ssh"

_started: dict[str, Cluster] = {}  # by profile: what start() has started in this process


class Cluster:
    """Some MPI ranks that run what a notebook gives them.

    A running cluster with enough ranks is joined, and left running at the end. Otherwise one is
    started that belongs to this process and ends with it, however it ends.

    Args:
        n: Number of ranks.
        profile: Name of the profile in ``cluster_profiles/``. Without, that of the environment
            variable GAN_TUTORIAL_PROFILE; without that too, any running cluster is joined, and
            what is started is "ssh" when hosts are named, else "mpi".
        hosts: Where to start ranks, for a profile that takes hosts: "node1:2,node2:2" with the
            number of ranks that each takes, or the Path of a host file. None for those that the
            profile names.
        timeout_s: How long starting may take, in seconds.
        attach: Whether to join a running cluster of the profile.
        process_group: Whether the ranks open their distributed session right away.
        hang_limit_s: How long a rank may wait in a collective before the cell says who waits for
            whom, in seconds.
        collective_timeout_s: How long it may wait until that is an error, in seconds.
        checks_calls: Whether the ranks compare what they call in each collective, and fail at
            once when it differs. Costs speed: see docs/faults.md.
    """

    def __init__(
        self,
        n: int = 2,
        profile: str | None = None,
        *,
        hosts: Hosts = None,
        timeout_s: float = START_TIMEOUT_S,
        attach: bool = True,
        process_group: bool = True,
        hang_limit_s: float = HANG_LIMIT_S,
        collective_timeout_s: float = TIMEOUT_S,
        checks_calls: bool = True,
    ) -> None:
        if not isinstance(n, int | Integral) or n < 1:  # NumPy's too
            raise ValueError(f"n={n!r}, but a cluster has a whole number of ranks, at least one")
        self.n = int(n)
        self.hosts = hosts
        chosen = profile or os.environ.get(PROFILE_VARIABLE)
        self.profile = chosen or (HOSTS_PROFILE if hosts is not None else DEFAULT_PROFILE)
        self._joins = None if chosen is None else self.profile
        self.timeout_s = timeout_s
        self.attach = attach and hosts is None  # a running one may be on other hosts
        self.options = Options(process_group, hang_limit_s, collective_timeout_s, checks_calls)
        self.ranks: Ranks | None = None

    def start(self) -> Ranks:
        """Start, or join, the ranks. Running the cell again reuses the ranks that run.

        Returns:
            The ranks, ready: all have passed an all-reduce.

        Raises:
            StartError: They did not come up: the message says which rank, and why.
            MpiError: There is no MPI, or it does not fit mpi4py.
        """
        previous = _started.pop(self.profile, None)
        if previous is not None and previous.ranks is not None and previous.ranks.is_open:
            problem = previous.ranks.problem()
            if (previous.n, previous.hosts) == (self.n, self.hosts) and not problem:
                LiveLine().end(f"using the {count(len(previous.ranks))} that run already")
                _started[self.profile] = previous
                self.ranks = previous.ranks
                return previous.ranks
            previous.ranks.stop()
            reason = f", because {problem}" if problem else ""
            LiveLine().end(f"stopped the {count(len(previous.ranks))} of before{reason}")
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
        if joined := self._join_running() if self.attach else None:
            self.ranks = Ranks(joined, self.options)
        else:
            self.ranks = Ranks(self._start_own(), self.options, self._start_own)
        return self.ranks

    def _start_own(self) -> Connection:
        return start(self.n, self.profile, os.getpid(), self.timeout_s, self.hosts)

    def restart(self) -> Ranks:
        """End the ranks and start new ones; see ``Ranks.restart``."""
        if self.ranks is None:
            return self.start()
        return self.ranks.restart()

    def where(self) -> Whereabouts:
        """What every rank is doing now; see ``Ranks.where``."""
        if self.ranks is None:
            raise ClusterError("there are no ranks yet: call start()")
        return self.ranks.where()

    def _join_running(self) -> Connection | None:
        for candidate in running_clusters(self._joins):
            line = LiveLine()
            try:
                connection = attach(candidate, self.n)
            except (OSError, ValueError):
                continue  # a stale file, or no controller behind it
            except ClusterError as error:
                line.end(f"not joining the cluster {candidate.origin}: {error}")
                continue
            found = len(connection.engines)
            asked = f" ({self.n} asked for)" if found > self.n else ""
            line.end(f"joined the {count(found)}{asked} {candidate.origin}; they run on afterwards")
            return connection
        return None


def attach(candidate: RunningCluster, n: int) -> Connection:
    """Connect to a running cluster.

    Args:
        candidate: The cluster.
        n: How many ranks it should have at least.

    Returns:
        A connection to all its ranks, which have passed an all-reduce.

    Raises:
        OSError: No controller answers.
        ClusterError: It has too few engines, they are in use, or are no ranks of one MPI world.
    """
    with contextlib.ExitStack() as opened:
        guest = lifeline.try_hold(candidate.client_file.with_name("guest.lock"))
        if guest is None:
            # Cells of two notebooks could reach the ranks in different orders, and block them.
            raise ClusterError("another notebook or script uses it")
        opened.callback(os.close, guest)
        known_end: Why = str
        endings: Callable[[], dict[int, dict[str, Any]]] = dict
        if candidate.lifeline is not None:
            watched = opened.enter_context(contextlib.closing(lifeline.Watched(candidate.lifeline)))
            known_end = functools.partial(_why_ended, watched)
            endings = ClusterFolder(candidate.lifeline.parent).endings
        client = open_client(candidate.client_file, ATTACH_TIMEOUT_S)
        opened.callback(client.close, linger=0)
        why_dead = HubPing(client, known_end)
        if len(known := registered(client)) < n:
            raise ClusterError(f"it has {len(known)} of the {n} engines asked for")
        engines, information = join(client, known, why_dead, ATTACH_TIMEOUT_S)

        def first(rank: int) -> tuple[int, str]:
            death = first_death(endings, rank)
            return job_note.cause(death, known_end) if candidate.is_job else death

        return Connection(client, engines, information, why_dead, opened.pop_all().close, first)


def _why_ended(watched: lifeline.Watched) -> str:
    match watched.why_ended():
        case "it has ended" | "it has been told to stop":
            return "the cluster has been stopped"
        case reason:
            return reason
