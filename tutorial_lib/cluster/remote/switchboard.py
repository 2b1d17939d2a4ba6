"""The supervisor's end of the links to ranks on several hosts: who lives, left, or is silent."""

from __future__ import annotations

import contextlib
import json
import secrets
import selectors
import socket
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tutorial_lib.cluster.remote.start_data import StartData
from tutorial_lib.cluster.remote.wire import HANDSHAKE_S, STOPPED_S, Message, Wire
from tutorial_lib.cluster.runtime import LOG_TAIL_BYTES, ClusterFolder
from tutorial_lib.cluster.whereabouts import sentence

BEAT_S = 1.0
SUSPECT_S = 3.0  # of silence; who ends meanwhile, ends because of it
TURN_S = 0.1
BACKLOG = 4096  # connections that may arrive at once


@dataclass
class Guest:
    """A rank that is linked to this supervisor.

    Attributes:
        wire: Its link.
        rank: Its rank; None until it has said it.
        host: Name of its host.
        has_left: Whether its process has ended, or its link has been closed.
    """

    wire: Wire
    rank: int | None = None
    host: str = ""
    has_left: bool = False


class Switchboard:
    """Listens to the guards of a cluster's ranks, in a thread of its own.

    Args:
        folder: The cluster's: ranks' reports and the ends of their logs are written there.
        addresses: Of this host, those that the other hosts reach.
        silence_s: How long a rank may be silent before it is lost, in seconds.

    Attributes:
        failure: Why what ranks say can't be heard or kept any more; "" while it can.

    Raises:
        OSError: An address is not of this host.
    """

    def __init__(self, folder: ClusterFolder, addresses: Sequence[str], silence_s: float) -> None:
        self.silence_s = silence_s
        self.failure = ""
        self._folder = folder
        self._token = secrets.token_hex(32)
        self._guests: list[Guest] = []
        self._selector = selectors.DefaultSelector()
        self._is_closed = False
        self._turned_at = time.monotonic()
        self._lock = threading.Lock()
        self._listeners = [
            socket.create_server((address, 0), backlog=BACKLOG) for address in addresses
        ]
        for listener in self._listeners:
            self._selector.register(listener, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, name="switchboard", daemon=True)
        self._thread.start()

    def start_data(self) -> StartData:
        """What an engine must know to link itself; the controller must be ready."""
        ways = [listener.getsockname()[:2] for listener in self._listeners]
        connection = json.loads(self._folder.engine_file.read_text(encoding="utf-8"))
        return StartData(self._folder.path.name, ways, self._token, self.silence_s, connection)

    def rank_that_left(self) -> int | None:
        """A rank whose process has ended; None while all live, as far as is known."""
        return next((guest.rank for guest in self._known() if guest.has_left), None)

    def silent(self, seconds: float) -> str:
        """Which ranks can't be reached, or "" when all can.

        Args:
            seconds: Of silence, from when on a rank counts.

        Returns:
            For a reader: hosts, ranks, since when, and what it may come from; ``failure``, if
            there is one.
        """
        if self.failure:
            return self.failure
        present = [guest for guest in self._known() if not guest.has_left]
        is_behind = time.monotonic() - self._turned_at > STOPPED_S
        if is_behind or not any(guest.wire.is_silent(seconds) for guest in present):
            return ""
        # Others may have been heard a moment later, and yet for the last time.
        lost: dict[str, list[Guest]] = {}
        for guest in present:
            if guest.wire.is_silent(min(seconds, SUSPECT_S)):
                lost.setdefault(guest.host, []).append(guest)
        return "; ".join(_unreachable(host, guests) for host, guests in sorted(lost.items()))

    def end_ranks(self) -> None:
        """Have all guards tell their ranks to end."""
        self._tell_all("end")

    def close(self) -> None:
        """Break all links; guards that still live end their ranks."""
        self._is_closed = True
        self._thread.join()
        for guest in self._guests:
            guest.wire.close()
        for listener in self._listeners:
            listener.close()
        self._selector.close()

    def _known(self) -> list[Guest]:
        """The ranks that have said who they are, in order."""
        with self._lock:
            known = [guest for guest in self._guests if guest.rank is not None]
        return sorted(known, key=lambda guest: guest.rank or 0)

    def _serve(self) -> None:
        try:
            self._turn()
        except Exception as error:
            traceback.print_exc()
            self._fail(f"the links to the ranks have failed ({type(error).__name__}: {error})")

    def _turn(self) -> None:
        beat_at = time.monotonic()
        while not self._is_closed:
            gap_s, self._turned_at = time.monotonic() - self._turned_at, time.monotonic()
            for guest in list(self._guests):
                guest.wire.overlook(gap_s)
            for key, _ in self._selector.select(TURN_S):
                if key.data is None:
                    self._accept(key.fileobj)
                else:
                    self._hear(key.data)
            if time.monotonic() >= beat_at:
                beat_at = time.monotonic() + BEAT_S
                self._tell_all("beat")
                self._drop_strangers()

    def _accept(self, listener: Any) -> None:
        with contextlib.suppress(OSError):
            connection, _ = listener.accept()
            guest = Guest(Wire(connection, self._token, is_supervisor=True))
            with self._lock:
                self._guests.append(guest)
            self._selector.register(connection, selectors.EVENT_READ, guest)

    def _hear(self, guest: Guest) -> None:
        try:
            messages = guest.wire.receive()
        except (EOFError, ConnectionError):
            self._unlink(guest)
            return
        except OSError:
            # A broken network is no end: silence will tell. A stranger is shown the door.
            if not guest.wire.is_known:
                self._unlink(guest)
            return
        for message in messages:
            with self._writing(guest):
                self._take(guest, message)

    @contextlib.contextmanager
    def _writing(self, guest: Guest) -> Iterator[None]:
        """Keep a failed write as a reason to end; the link itself goes on."""
        try:
            yield
        except OSError as error:
            self._fail(f"what rank {guest.rank} on {guest.host} says can't be kept: {error}")

    def _fail(self, why: str) -> None:
        self.failure = self.failure or f"{why}; look at the supervisor's host, its disk first"

    def _take(self, guest: Guest, message: Message) -> None:
        match message["what"]:
            case "hello":
                guest.host, guest.rank = message["host"], int(message["rank"])
            case "report":
                self._folder.write_report({**message["note"], "host": guest.host})
            case "log":
                text = str(message["text"])[-LOG_TAIL_BYTES:]
                self._folder.log(f"rank-{guest.rank}").write_text(text, encoding="utf-8")
            case "ended" if guest.rank is not None:
                ended_time = time.time() - float(message["age_s"])
                self._folder.note_end(guest.rank, message["pid"], message["code"], ended_time)
            case "left":
                guest.has_left = True
                with contextlib.suppress(OSError):
                    guest.wire.send("beat")  # the last: it lets the guard go

    def _tell_all(self, what: str) -> None:
        with self._lock:
            guests = list(self._guests)
        for guest in guests:
            if not guest.has_left:
                with contextlib.suppress(OSError):
                    guest.wire.send(what)

    def _unlink(self, guest: Guest) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(guest.wire.connection)
        if guest.rank is None:
            with self._lock:
                self._guests.remove(guest)
            guest.wire.close()
            return
        with self._writing(guest):
            if (note := self._folder.reports().get(guest.rank)) is not None:
                self._folder.write_report({**note, "has_ended": True})
        guest.has_left = True

    def _drop_strangers(self) -> None:
        for guest in list(self._guests):
            if guest.rank is None and guest.wire.is_silent(HANDSHAKE_S):
                self._unlink(guest)


def _unreachable(host: str, guests: Sequence[Guest]) -> str:
    ranks = [guest.rank for guest in guests if guest.rank is not None]
    last = max(guests, key=lambda guest: guest.wire.heard_at)
    silence_s = time.monotonic() - last.wire.heard_at
    since = time.strftime("%H:%M:%S", time.localtime(last.wire.heard_time))
    who = sentence(ranks, f"on {host} can't be reached since {since}")
    return (
        f"{who} (no sign of life for {silence_s:.0f} s): the network between the hosts is cut, or "
        f"{host} is down"
    )
