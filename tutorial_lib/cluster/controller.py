"""The program that carries messages between notebooks and engines: ipyparallel's controller.

    python -m tutorial_lib.cluster.controller [options of ipcontroller]

It differs from ipcontroller in five ways:

- its heart monitor is a thread: a process forked while threads run can inherit a lock that nobody
  opens any more, and hang for ever;
- the ports that it has chosen stay its own until it listens on them;
- engines may come by all addresses while clients come by one;
- it ends when one of its threads fails, which would leave the ranks waiting;
- it, with its helper processes if a profile asks for some, ends when the cluster's supervisor does.

On SIGUSR1 it writes what its threads do into its log.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any

from ipyparallel.controller.app import IPController
from traitlets import List

from tutorial_lib.cluster import lifeline, process
from tutorial_lib.cluster.runtime import FOLDER_VARIABLE, ClusterFolder

GRACE_S = 2.0
PORT_TRIES = 100
EVERYWHERE = "0.0.0.0"
PYZMQ_PORTS_FROM = 49152  # where pyzmq's sockets try random ports, whoever keeps them


class Controller(IPController):
    """ipyparallel's controller without a fork, and with ports that nobody else can take."""

    kept = List[socket.socket]()

    def next_port(self, pool_name: str = "common") -> int:
        """Choose a port, and keep it: ipyparallel listens on it only some time later.

        Args:
            pool_name: Of the ports that the configuration names, if it does.
        """
        # Elsewhere nobody could listen on a port that is kept.
        if sys.platform != "linux" or self.ports or self.engine_ports or self.client_ports:
            return int(super().next_port(pool_name))  # type: ignore[no-untyped-call]
        keeper = keep_port()
        self.kept.append(keeper)
        return int(keeper.getsockname()[1])

    def bind(self, socket: Any, url: str) -> Any:
        """Listen, on a port that engines and clients share only once if that is for all addresses.

        Args:
            socket: ZeroMQ's.
            url: Where.
        """
        is_shared = url == self.client_url("registration")  # type: ignore[no-untyped-call]
        if is_shared and self.engine_ip == EVERYWHERE != self.client_ip:
            return None  # the engines' address, which comes next, includes the clients'
        return super().bind(socket, url)  # type: ignore[no-untyped-call]

    def init_hub(self) -> None:
        """Make the hub, and a thread of what ipyparallel would fork."""
        super().init_hub()  # type: ignore[no-untyped-call]
        self.heartmonitor_process = threading.Thread(  # type: ignore[assignment]
            target=self.heartmonitor_process.run, name="HeartMonitor", daemon=True
        )


def keep_port() -> socket.socket:
    """Choose a free port that, from now on, only a socket with SO_REUSEADDR can be bound to.

    ZeroMQ's have it. The system gives the port to nobody else, nor to an outgoing connection.
    """
    for _ in range(PORT_TRIES):
        keeper = socket.socket()
        keeper.bind(("", 0))
        if keeper.getsockname()[1] < PYZMQ_PORTS_FROM:
            break
        keeper.close()
    else:
        keeper = socket.socket()
        keeper.bind(("", 0))
    keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # not before: it was to be ours
    return keeper


def main() -> None:
    """Run the controller until it is told to stop."""
    faulthandler.register(signal.SIGUSR1)
    threading.excepthook = _fail
    os.register_at_fork(after_in_child=process.die_with_parent)
    if folder := os.environ.get(FOLDER_VARIABLE):
        lifeline.watch(ClusterFolder(Path(folder)).lifeline, _end)
    Controller.launch_instance()


def _fail(failure: threading.ExceptHookArgs) -> None:
    """End with a thread: without it, messages or heartbeats would get lost without a word."""
    threading.__excepthook__(failure)
    os._exit(1)


def _end() -> None:
    lifeline.end_within(GRACE_S, 1)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
