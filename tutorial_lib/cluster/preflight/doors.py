"""Whether hosts reach each other, and whose clock is ahead: each opens a port, all others knock.

MPI has its own ways, and the ranks run; but torch's store and gloo open ports that the system
chooses, and find a host by its name. So that is what is tried here. One rank of each host does it.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import psutil

CONNECT_S = 4.0
OPEN_S = 60.0  # a door that nobody closes closes by itself
PINGS = 8
PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")

_ANSWER = struct.Struct("!id")  # the rank behind the door, and its clock

_doors: list[socket.socket] = []  # open ones; this process has at most one


@dataclass(frozen=True)
class Door:
    """A port that a host has opened to be knocked at.

    Attributes:
        rank: Who opened it.
        host: Name of the host.
        port: The port, chosen by the system.
        name: By which torch's store finds this host.
        addresses: Its IPv4 addresses but for those of loopback.
        ports: From which range the system chooses, "32768-60999"; "" if that is not known.
    """

    rank: int
    host: str
    port: int
    name: str
    addresses: tuple[str, ...]
    ports: str = ""


@dataclass(frozen=True)
class Knock:
    """What came of one try to reach a host.

    Attributes:
        origin: The host that tried.
        host: The host to be reached.
        at: The name or address that was tried.
        problem: Why it failed; "" if it did not.
        ahead_s: By how much the clock there is ahead of the one here, in seconds.
        within_s: How far from the truth that can be, in seconds: half a round trip.
    """

    origin: str
    host: str
    at: str
    problem: str = ""
    ahead_s: float = 0.0
    within_s: float = 0.0


def open_door(rank: int, leaders: Sequence[int], token: str) -> Door | None:
    """Open a port on all interfaces, for a while.

    Args:
        rank: This rank.
        leaders: The ranks that do this, one a host.
        token: Says who may knock.

    Returns:
        The door; None if this rank is none of those.
    """
    close_door()
    if rank not in leaders:
        return None
    listener = socket.create_server(("", 0), backlog=128)
    _doors.append(listener)
    threading.Thread(
        target=_answer, args=(listener, rank, token.encode()), name="door", daemon=True
    ).start()
    addresses = [
        address.address
        for interface in psutil.net_if_addrs().values()
        for address in interface
        if address.family == socket.AF_INET and not address.address.startswith("127.")
    ]
    port, name = listener.getsockname()[1], socket.getfqdn()
    return Door(rank, socket.gethostname(), port, name, tuple(addresses), _port_range())


def close_door() -> None:
    """Close this process's door, if there is one."""
    while _doors:
        door = _doors.pop()
        with contextlib.suppress(OSError):
            door.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for visitors
        door.close()


def knock(
    rank: int, doors: Sequence[Door], token: str, timeout_s: float = CONNECT_S
) -> list[Knock]:
    """Try to reach all other hosts, by name and by each address, all at once.

    Args:
        rank: This rank.
        doors: Of all hosts; a rank that has none does nothing.
        token: As for ``open_door``.
        timeout_s: How long each step of a try may take, in seconds.

    Returns:
        What came of each try, in the order of the doors.
    """
    own = [door for door in doors if door.rank == rank]
    tries = [
        (own[0].host, door, at)
        for door in doors
        if own and door.rank != rank
        for at in dict.fromkeys((door.name, *door.addresses))
    ]
    if not tries:
        return []
    with ThreadPoolExecutor(len(tries), "knock") as pool:
        secret = token.encode()
        return list(pool.map(lambda one: _try(one[0], one[1], one[2], secret, timeout_s), tries))


def _try(origin: str, door: Door, at: str, token: bytes, timeout_s: float) -> Knock:
    try:
        with socket.create_connection((at, door.port), timeout=timeout_s) as connection:
            connection.sendall(token)
            measured = [_ping(connection, door.rank) for _ in range(PINGS)]
    except OSError as error:
        return Knock(origin, door.host, at, error.strerror or str(error))
    within_s, ahead_s = min(measured)  # the quickest is the most exact
    return Knock(origin, door.host, at, "", ahead_s, within_s)


def _ping(connection: socket.socket, rank: int) -> tuple[float, float]:
    """Half of a round trip, and by how much the other clock is ahead of the middle of it."""
    sent, began = time.time(), time.perf_counter()
    connection.sendall(b"?")
    answer = _receive(connection, _ANSWER.size)
    half_s = (time.perf_counter() - began) / 2
    found, clock = _ANSWER.unpack(answer)
    if found != rank:
        raise OSError(f"leads to the host of rank {found}")
    return half_s, clock - (sent + half_s)


def _answer(listener: socket.socket, rank: int, token: bytes) -> None:
    """Let in who knows the token, one after the other, and tell them the time."""
    deadline = time.monotonic() + OPEN_S
    with listener:
        while (left_s := deadline - time.monotonic()) > 0:
            try:
                listener.settimeout(left_s)
                connection, _ = listener.accept()
            except OSError:
                return  # closed, or nobody came
            threading.Thread(
                target=_serve, args=(connection, rank, token), name="door", daemon=True
            ).start()


def _serve(connection: socket.socket, rank: int, token: bytes) -> None:
    with connection:
        try:
            connection.settimeout(CONNECT_S)
            if _receive(connection, len(token)) == token:
                while connection.recv(1):
                    connection.sendall(_ANSWER.pack(rank, time.time()))
        except OSError:
            return


def _receive(connection: socket.socket, nbytes: int) -> bytes:
    text = b""
    while len(text) < nbytes:
        if not (part := connection.recv(nbytes - len(text))):
            raise ConnectionError("answers, but not as a rank: another program has this port there")
        text += part
    return text


def _port_range() -> str:
    try:
        return "-".join(PORT_RANGE.read_text(encoding="ascii").split())
    except OSError:
        return ""
