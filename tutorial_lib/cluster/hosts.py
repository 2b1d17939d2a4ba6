"""Hosts for ranks: read from a file or a line, filled in order, and reached by the right address.

node1 slots=2          # Open MPI's way
node2:2                # MPICH's
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tutorial_lib.cluster.errors import HostsError

ANY_PORT = 9  # for a socket that sends nothing: the system only picks a route

_NAME = r"(?:[\w.-]+@)?[\w.-]+"
_ENTRY = re.compile(rf"(?P<name>{_NAME})(?::(?P<colon>\w+))?(?P<rest>(?:\s+\w[\w-]*\s*=\s*\S+)*)")
_WORD = re.compile(r"([\w-]+)\s*=\s*(\S+)")


@dataclass(frozen=True)
class Host:
    """A host, and how many ranks it takes.

    Attributes:
        name: As ssh knows it, without the user.
        slots: Number of ranks.
    """

    name: str
    slots: int

    def __str__(self) -> str:
        return f"{self.name}:{self.slots}"


def read_hosts(text: str) -> list[Host]:
    """Read hosts from a line, "node1:2,node2:2"; without a number a host has one slot.

    Args:
        text: The line.

    Raises:
        HostsError: An entry is none.
    """
    entries = [entry.strip() for entry in text.split(",")]
    return _merge(_entry(entry, f"hosts {text!r}, entry {i}") for i, entry in enumerate(entries, 1))


def read_hostfile(path: Path) -> list[Host]:
    """Read a host file: a host a line, ``node1 slots=2`` or ``node1:2``; # begins a comment.

    Args:
        path: Of the file.

    Raises:
        HostsError: There is no such file, or a line is no host: the message names the line.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise HostsError(f"{path}: the host file can't be read: {error}") from error
    entries = [(number, line.partition("#")[0].strip()) for number, line in enumerate(lines, 1)]
    found = _merge(_entry(entry, f"{path}:{number}") for number, entry in entries if entry)
    if not found:
        raise HostsError(f"{path}: no host in it: write one a line, for example `node1 slots=2`")
    return found


def place_ranks(hosts: Sequence[Host], n: int) -> list[Host]:
    """Fill the hosts' slots in order.

    Args:
        hosts: What there is.
        n: Number of ranks.

    Returns:
        The hosts that get ranks, with ``slots`` as many as each gets.

    Raises:
        HostsError: There are fewer slots.
    """
    left, placed = n, []
    for host in hosts:
        if taken := min(left, host.slots):
            placed.append(replace(host, slots=taken))
            left -= taken
    if left:
        listed = ",".join(map(str, hosts))
        raise HostsError(
            f"{n} ranks asked for, but {listed} have {n - left} slots: ask for fewer ranks, or "
            "give a host more slots"
        )
    return placed


def address_of(name: str) -> str:
    """The IPv4 address of a host.

    Args:
        name: The host.

    Raises:
        HostsError: The name does not resolve.
    """
    try:
        return str(socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        raise HostsError(
            f"host {name!r} has no IPv4 address here ({error.args[-1]}): correct the name, or put "
            "it into /etc/hosts or the DNS"
        ) from error


def address_towards(name: str) -> str:
    """The address of this host that packets to another host carry: the one it can answer to.

    Args:
        name: The other host.

    Raises:
        HostsError: The name does not resolve, or there is no route.
    """
    address = address_of(name)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, ANY_PORT))
        except OSError as error:
            raise HostsError(f"no route to {name} ({address}): {error.strerror}") from error
        return str(probe.getsockname()[0])


def addresses_towards(names: Iterable[str]) -> list[str]:
    """The addresses of this host that some hosts reach it by, each once, real networks first.

    Args:
        names: The hosts.
    """
    found = dict.fromkeys(address_towards(name) for name in names)
    return sorted(found, key=is_loopback)


def is_loopback(address: str) -> bool:
    """Whether an IPv4 address never leaves its host."""
    return address.startswith("127.")


def _entry(text: str, place: str) -> Host:
    match = _ENTRY.fullmatch(text)
    if match is None:
        raise HostsError(
            f"{place}: {text!r} is no host: write `node1 slots=2` in a file, `node1:2` in either"
        )
    slots = match["colon"]
    for word, value in _WORD.findall(match["rest"]):
        if word == "slots":
            slots = value
        elif word not in ("max-slots", "max_slots"):
            raise HostsError(f"{place}: {word!r} is not known here: only slots=NUMBER is")
    if slots is not None and (not slots.isascii() or not slots.isdigit() or int(slots) < 1):
        raise HostsError(f"{place}: {slots!r} is no number of slots: 1 or more is")
    return Host(match["name"], int(slots or 1))


def _merge(hosts: Iterable[Host]) -> list[Host]:
    """Add the slots of a host that is there more than once."""
    found: dict[str, Host] = {}
    for host in hosts:
        before = found.get(host.name, Host(host.name, 0))
        found[host.name] = replace(host, slots=before.slots + host.slots)
    return list(found.values())
