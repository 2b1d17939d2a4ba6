"""From a number of ranks to ranks that are ready: start them, wait, and join them."""

from __future__ import annotations

import time

from tutorial_lib.cluster.connection import (
    HUB_TIMEOUT_S,
    Connection,
    join,
    open_client,
    registered,
)
from tutorial_lib.cluster.errors import ClusterError, MpiError, StartError
from tutorial_lib.cluster.job_note import StartLimit, cause
from tutorial_lib.cluster.launch import Hosts
from tutorial_lib.cluster.live_line import LiveLine
from tutorial_lib.cluster.obituary import first_death
from tutorial_lib.cluster.start_failure import both_mpis, check, explain
from tutorial_lib.cluster.supervised import POLL_S, Supervised, plan
from tutorial_lib.cluster.whereabouts import count


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
            except (OSError, ValueError) as error:
                is_silent = isinstance(error, TimeoutError)
                check(supervised, limit, set(), "the controller does not answer" * is_silent)
                time.sleep(POLL_S)
        known: dict[int, str] = {}
        while len(known) < n:
            obstacle = ""
            try:
                known = registered(client)
            except ClusterError as error:  # a busy host's controller may be late
                obstacle = str(error)
            queued = limit.look()
            line.show(f"starting {count(n)}: {queued or f'{len(known)}/{n} engines'}")
            if len(known) < n:
                check(supervised, limit, set(known), obstacle)
                time.sleep(POLL_S)
        left_s = max(1.0, limit.left_s)
        try:
            engines, information = join(client, known, supervised.why_dead, left_s)
        except MpiError as error:
            raise MpiError(f"{error}; {both_mpis(supervised)}") from None
        except ClusterError as error:
            raise StartError(explain(supervised, str(error), None)) from error
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
