"""Messages between a supervisor and the guards of its ranks: JSON lines over TCP.

Each line carries a code that only who knows the cluster's token can make, for this connection, this
direction and this place in the row: nobody else can put a message in, or play one back. Nothing
secret is sent.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import socket
import threading
import time
from typing import Any

SEND_S = 5.0  # the system takes what is sent even when the network is cut, until much has gathered
STOPPED_S = 2.0  # a loop that turns more seldom has been stopped, or its host is overloaded
LONGEST_LINE = 2**20
HANDSHAKE_S = 10.0

Message = dict[str, Any]


class WireError(OSError):
    """The other end does not know the token, or what came is no message."""


class Wire:
    """One end of a connection; several threads may send, one receives.

    Args:
        connection: The socket, connected.
        token: The cluster's.
        is_supervisor: Whether this end is the supervisor's.

    Attributes:
        connection: The socket.
        heard_at: When something was last heard, by the monotonic clock.
        heard_time: The same, in seconds since the epoch.
    """

    def __init__(self, connection: socket.socket, token: str, is_supervisor: bool) -> None:
        self.connection = connection
        self._token = token
        self._is_supervisor = is_supervisor
        self._own = secrets.token_hex(16)
        self._other: str | None = None
        self._sent = self._received = 0
        self._text = b""
        self._waiting: list[Message] = []
        self._sending = threading.Lock()  # lines must leave in the order of their numbers
        self.heard_at, self.heard_time = time.monotonic(), time.time()
        connection.settimeout(SEND_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(f"{self._own}\n".encode())

    @property
    def is_known(self) -> bool:
        """Whether the other end has shown that it knows the token."""
        return self._received > 0

    def overlook(self, gap_s: float) -> None:
        """Let a time not count in which this process itself was stopped, and heard nothing.

        Args:
            gap_s: How long that was, in seconds.
        """
        if gap_s > STOPPED_S:
            self.heard_at = min(self.heard_at + gap_s, time.monotonic())

    def is_silent(self, seconds: float) -> bool:
        """Whether nothing has been heard for some seconds.

        Args:
            seconds: How many.
        """
        return time.monotonic() - self.heard_at > seconds

    def send(self, what: str, **content: object) -> None:
        """Send a message; before the other end's first line it is kept until then.

        Args:
            what: Its kind.
            **content: The rest of it.

        Raises:
            OSError: The connection has broken.
        """
        with self._sending:
            self._waiting.append({"what": what, **content})
            self._flush()

    def receive(self) -> list[Message]:
        """Read what has come; to be called when the socket can be read.

        Returns:
            The messages.

        Raises:
            EOFError: The other end has closed the connection.
            OSError: It has broken, or something else than a message came.
        """
        received = self.connection.recv(2**16)
        if not received:
            raise EOFError("the other end has closed the connection")
        *lines, self._text = (self._text + received).split(b"\n")
        if max(map(len, [*lines, self._text])) > LONGEST_LINE:
            raise WireError("a line is too long to be a message")
        messages = []
        for line in lines:
            if self._other is None:
                with self._sending:
                    self._other = line.decode("ascii", "replace")
                    self._flush()
                continue
            code, _, body = line.partition(b" ")
            if not hmac.compare_digest(code, self._code(body, self._received, is_own=False)):
                raise WireError("the other end does not belong to this cluster")
            self._received += 1
            self.heard_at, self.heard_time = time.monotonic(), time.time()
            messages.append(json.loads(body))
        return messages

    def close(self) -> None:
        """End the connection."""
        self.connection.close()

    def _flush(self) -> None:
        while self._waiting and self._other is not None:
            body = json.dumps(self._waiting.pop(0)).encode()
            code = self._code(body, self._sent, is_own=True)
            self._sent += 1
            self.connection.sendall(code + b" " + body + b"\n")

    def _code(self, body: bytes, number: int, is_own: bool) -> bytes:
        """A line's code: it holds for one token, connection, direction and place."""
        nonces = [self._own, self._other or ""]
        if not self._is_supervisor:
            nonces.reverse()
        sender = "supervisor" if is_own == self._is_supervisor else "guard"
        head = f"{'.'.join(nonces)}.{sender}.{number}.".encode()
        return hmac.new(self._token.encode(), head + body, hashlib.sha256).hexdigest().encode()
