"""Where ranks find each other before there is a process group: a key-value store that all reach."""

from __future__ import annotations

import errno
import json
import os
import socket
import sys
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import accumulate
from typing import Any

import torch.distributed as dist

from tutorial_lib.distributed.topology import LOCAL_VARIABLES, Topology

MPI_BACKEND = "mpi4py"
ADDRESS_VARIABLE = "GAN_TUTORIAL_ADDRESS"
MESSAGE_BYTES = 4096

_unheard: list[Any] = []  # messages given up; MPI may still write to their memory


def store_under_mpi(topology: Topology, backend: str, timeout: timedelta) -> dist.Store:
    """Where the ranks find each other when MPI started them. Collective."""
    if backend == MPI_BACKEND:
        from tutorial_lib.distributed import mpi_backend, mpi_progress, mpi_store

        mpi_backend.register()
        if mpi_progress.has_threads():
            return mpi_store.Store(timeout.total_seconds())
    return _store_through_mpi(topology, timeout)


def _store_through_mpi(topology: Topology, timeout: timedelta) -> dist.Store:
    """A key-value store at a port that rank 0's system chose and MPI tells the others.

    No two clusters on a host can want the same port, and no port is guessed.
    """
    if topology.is_main:
        # The engines of a cluster know by which address the other hosts reach them.
        reached = os.environ.get(ADDRESS_VARIABLE) or socket.getfqdn()
        host = "127.0.0.1" if topology.is_one_host else reached
        try:
            server = dist.TCPStore(
                host, 0, topology.world_size, True, timeout=timeout, wait_for_workers=False
            )
        except Exception as error:
            reason = str(error)[:500]
            _tell({"failure": f"rank 0 could not open a store on {host}: {reason}"}, timeout)
            raise
        _tell({"host": host, "port": server.port}, timeout)
        return server
    told = _tell({}, timeout)
    if "failure" in told:
        raise RuntimeError(told["failure"])
    return dist.TCPStore(told["host"], told["port"], topology.world_size, False, timeout=timeout)


def _tell(message: dict[str, Any], timeout: timedelta) -> dict[str, Any]:
    """Rank 0's message on every rank, waited for without freezing. Collective."""
    from mpi4py import MPI

    from tutorial_lib.distributed.mpi_wait import wait_until

    content = bytearray(json.dumps(message).encode().ljust(MESSAGE_BYTES))
    request = MPI.COMM_WORLD.Ibcast([content, MPI.BYTE])
    if not wait_until(request.Test, timeout.total_seconds()):
        _unheard.append((request, content))
        raise TimeoutError(
            f"rank {MPI.COMM_WORLD.rank} waited {timeout.total_seconds():g} s for rank 0 to say "
            "where the ranks meet: look whether all ranks open their session"
        )
    heard: dict[str, Any] = json.loads(content)
    return heard


def exchange(
    text: str, topology: Topology, store: dist.Store | None, timeout: timedelta
) -> list[str]:
    """What each rank has to say, in rank order, before there is a process group. Collective.

    Args:
        text: This rank's part.
        topology: This rank's place.
        store: Where the ranks meet; None when MPI started them.
        timeout: How long to wait for the others.

    Raises:
        TimeoutError: A rank has said nothing in time.
    """
    if store is not None:
        store.set(f"said by rank {topology.rank}", text)
        told = [store.get(f"said by rank {rank}") for rank in range(topology.world_size)]
        return [part.decode() for part in told]
    from mpi4py import MPI

    from tutorial_lib.distributed.mpi_wait import wait_until

    def wait(request: Any, *memory: Any) -> None:
        if not wait_until(request.Test, timeout.total_seconds()):
            _unheard.append((request, memory))
            raise TimeoutError(
                f"rank {topology.rank} waited {timeout.total_seconds():g} s for what the others "
                "have to say: look whether all ranks open their session"
            )

    own = bytearray(text.encode())
    length = array("q", [len(own)])
    lengths = array("q", bytes(8 * topology.world_size))
    wait(MPI.COMM_WORLD.Iallgather(length, lengths), length, lengths)
    everyone = bytearray(sum(lengths))
    parts = [everyone, (tuple(lengths), None), MPI.BYTE]
    wait(MPI.COMM_WORLD.Iallgatherv(own, parts), own, parts)
    starts = accumulate(lengths, initial=0)
    return [everyone[at : at + size].decode() for at, size in zip(starts, lengths, strict=False)]


def store_at_master(topology: Topology, timeout: timedelta) -> dist.Store:
    """A key-value store where MASTER_ADDR and MASTER_PORT say, which rank 0 serves. Collective."""
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    try:
        return dist.TCPStore(
            host, port, topology.world_size, topology.is_main, timeout=timeout, multi_tenant=True
        )
    except dist.DistNetworkError as error:
        if not topology.is_main or "EADDRINUSE" not in str(error):
            raise
        raise OSError(
            errno.EADDRINUSE,
            f"MASTER_PORT={port} is taken on {topology.host}, so the other ranks can't reach "
            "rank 0 there: set another one, the same on all ranks",
        ) from None


def locate(topology: Topology, store: dist.Store) -> Topology:
    """Find out which ranks share a host, unless the environment says it. Collective."""
    if all(name in os.environ for name in LOCAL_VARIABLES):
        return topology
    store.set(f"host of rank {topology.rank}", topology.host)
    names = [store.get(f"host of rank {rank}").decode() for rank in range(topology.world_size)]
    return topology.among(names)


@contextmanager
def gloo_on_loopback(is_one_host: bool) -> Iterator[None]:
    """Let gloo talk over the loopback interface: a host's name need not resolve."""
    name = "GLOO_SOCKET_IFNAME"
    if not is_one_host or name in os.environ:
        yield
        return
    os.environ[name] = "lo0" if sys.platform == "darwin" else "lo"
    try:
        yield
    finally:
        os.environ.pop(name, None)
