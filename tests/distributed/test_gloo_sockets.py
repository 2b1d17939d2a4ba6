"""Shutting gloo's connections down, which another thread does at any time."""

import os
import socket
import threading
from types import SimpleNamespace

from tutorial_lib.distributed import gloo_sockets


def test_sockets_are_forgotten_once_a_shut_down_that_has_begun_has_ended(monkeypatch):
    """Else it could take the next group's socket for the one that had its number."""
    has_begun, may_end = threading.Event(), threading.Event()

    def slow_fstat(descriptor):
        has_begun.set()
        assert may_end.wait(20)
        return os.fstat(descriptor)

    with gloo_sockets.noted():
        ours, theirs = socket.socketpair()
    with ours, theirs:
        slow_os = SimpleNamespace(fstat=slow_fstat, dup=os.dup)
        monkeypatch.setattr(gloo_sockets, "os", slow_os)
        shutting = threading.Thread(target=gloo_sockets.shut_down)
        shutting.start()
        assert has_begun.wait(20)
        forgetting = threading.Thread(target=gloo_sockets.forget)
        forgetting.start()
        forgetting.join(0.1)
        assert forgetting.is_alive()
        may_end.set()
        for thread in (shutting, forgetting):
            thread.join(20)
        assert theirs.recv(1) == b"", "it was shut down"
