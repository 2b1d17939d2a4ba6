"""The one way to end a wait in gloo: shut the connections of its ranks down.

gloo waits in C++ for its time-out, deaf to Ctrl-C. Its connections are told from others by when
they were opened.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import threading
from collections.abc import Iterator

_sockets: dict[int, int] = {}  # inode -> descriptor, of gloo's connections
_shutting = threading.Lock()


@contextlib.contextmanager
def noted() -> Iterator[None]:
    """Remember the sockets that are opened meanwhile as gloo's, in place of those of before."""
    forget()
    before = _open_sockets()
    yield
    opened = {i: fd for i, fd in _open_sockets().items() if i not in before}
    with _shutting:
        _sockets.update(opened)


def forget() -> None:
    """Forget gloo's sockets: it has closed them, and their numbers may soon be another's."""
    with _shutting:  # let one that has begun end first
        _sockets.clear()


def shut_down() -> None:
    """End every wait for the session's gloo group, on this rank and on those it talks to."""
    with _shutting:
        for inode, descriptor in _sockets.items():
            with contextlib.suppress(OSError):
                if os.fstat(descriptor).st_ino != inode:
                    continue
                with socket.socket(fileno=os.dup(descriptor)) as connection:
                    # A listening one must live: gloo ends the process when its own breaks.
                    if not connection.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                        connection.shutdown(socket.SHUT_RDWR)


def _open_sockets() -> dict[int, int]:
    found = {}
    for name in os.listdir("/dev/fd"):
        with contextlib.suppress(OSError):
            status = os.fstat(int(name))
            if stat.S_ISSOCK(status.st_mode):
                found[status.st_ino] = int(name)
    return found
