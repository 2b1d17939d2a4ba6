"""The controller starts whatever else happens on its host, and says which part of it hangs."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import zmq
from processes import command_line

from tutorial_lib.cluster import Cluster, StartError, connection
from tutorial_lib.cluster.controller import keep_port
from tutorial_lib.cluster.runtime import ClusterFolder
from tutorial_lib.cluster.supervised import PYTHON

Install = Callable[[str], None]
Find = Callable[[], list[psutil.Process]]


@pytest.fixture
def in_controller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Has code run in the controller's process before anything else."""

    def install(code: str) -> None:
        condition = "import sys\nif 'tutorial_lib.cluster.controller' in sys.orig_argv:\n"
        body = textwrap.indent(textwrap.dedent(code), "    ")
        (tmp_path / "sitecustomize.py").write_text(condition + body)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    return install


def start(timeout_s: float = 90) -> None:
    with Cluster(2, timeout_s=timeout_s, process_group=False) as ranks:
        assert ranks.run("1 + 1") == {0: 2, 1: 2}


def start_fails(timeout_s: float) -> str:
    with pytest.raises(StartError) as caught:
        start(timeout_s)
    return str(caught.value)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere ports are not kept")
def test_kept_port_is_for_zeromq_only() -> None:
    with keep_port() as keeper, zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        port = keeper.getsockname()[1]
        for address in ("127.0.0.1", ""):
            with socket.socket() as thief, pytest.raises(OSError, match="in use"):
                thief.bind((address, port))
        # A connection to a port that nobody listens on can be one with itself.
        with socket.socket() as hasty, pytest.raises(ConnectionRefusedError):
            hasty.connect(("127.0.0.1", port))
        router.bind(f"tcp://127.0.0.1:{port}")
        with context.socket(zmq.DEALER) as dealer:
            dealer.connect(f"tcp://127.0.0.1:{port}")
            dealer.send(b"hello")
            assert router.poll(30_000)
            assert router.recv_multipart()[1] == b"hello"


@pytest.mark.engines
def test_lock_held_by_another_thread_at_a_fork_does_not_matter(in_controller: Install) -> None:
    in_controller(
        """
        import os, threading
        lock = threading.Lock()
        os.register_at_fork(
            before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.acquire
        )
        """
    )
    start()


@pytest.mark.engines
def test_controller_has_no_child(cluster_processes: Find) -> None:
    with Cluster(2, process_group=False):
        (controller,) = (
            process
            for process in cluster_processes()
            if "tutorial_lib.cluster.controller" in command_line(process)
        )
        assert not controller.children()


@pytest.mark.engines
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere ports are not kept")
@pytest.mark.parametrize("channel", ["hb_ping", "mux"])
def test_port_is_not_lost_before_it_is_used(channel: str, in_controller: Install) -> None:
    in_controller(
        f"""
        import socket
        from ipyparallel.controller.app import IPController

        original = IPController.init_schedulers
        thieves = []

        def init_schedulers(self):
            original(self)
            thieves.append(socket.socket())
            try:
                thieves[0].bind(("127.0.0.1", self.engine_info["{channel}"]))
                thieves[0].listen()
            except OSError:
                pass

        IPController.init_schedulers = init_schedulers
        """
    )
    start()


def test_engines_may_come_by_all_addresses(tmp_path: Path, repository: Path) -> None:
    folder = ClusterFolder(tmp_path)
    command = [
        *PYTHON,
        "tutorial_lib.cluster.controller",
        f"--config={repository / 'cluster_profiles' / 'profile_mpi' / 'ipcontroller_config.py'}",
        f"--profile-dir={tmp_path}",
        "--IPController.client_ip=127.0.0.1",
        "--IPController.engine_ip=0.0.0.0",
    ]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as controller:
        try:
            deadline = time.monotonic() + 60
            client = None
            while client is None and time.monotonic() < deadline and controller.poll() is None:
                with contextlib.suppress(OSError, ValueError):
                    client = connection.open_client(folder.client_file, 30)
            assert client is not None
            assert connection.registered(client, 30) == {}
            client.close()
        finally:
            controller.terminate()


@pytest.mark.engines
def test_thread_that_fails_ends_the_controller_with_its_reason(in_controller: Install) -> None:
    in_controller(
        """
        from zmq.devices import ThreadMonitoredQueue

        def run_device(self):
            raise RuntimeError("no such device")

        ThreadMonitoredQueue.run_device = run_device
        """
    )
    message = start_fails(timeout_s=60)
    assert "its controller has ended with exit status 1" in message
    assert "--- controller.log" in message
    assert "RuntimeError: no such device" in message


@pytest.mark.engines
def test_heart_monitor_that_hangs_is_named_with_its_stack(in_controller: Install) -> None:
    in_controller(
        """
        import time
        from ipyparallel.controller.heartmonitor import HeartMonitor

        def hang_here(self):
            time.sleep(600)

        HeartMonitor.start = hang_here
        """
    )
    message = start_fails(timeout_s=30)  # a busy host's ranks take 20 s to get so far
    assert "0 of 2 ranks came up: it took too long" in message
    assert "waiting for the controller's heart monitor" in message
    assert "--- what the controller's threads do" in message
    assert "in hang_here" in message


@pytest.mark.engines
def test_hub_that_hangs_is_named_with_its_stack(in_controller: Install) -> None:
    in_controller(
        """
        import time
        from ipyparallel.controller.hub import Hub

        def hang_here(self, idents, message):
            time.sleep(600)

        Hub.connection_request = hang_here
        """
    )
    message = start_fails(timeout_s=25)
    assert "it took too long: the controller does not answer" in message
    assert "in hang_here" in message


@pytest.mark.engines
def test_message_that_is_lost_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from ipyparallel.client.client import Client

    original = Client.send_apply_request
    lost = []

    def lose_the_first(self: Any, *arguments: Any, ident: bytes, **options: Any) -> Any:
        if len(lost) < 2:
            lost.append(ident)
            ident = b"nobody"  # as a rank is that has not connected yet
        return original(self, *arguments, ident=ident, **options)

    monkeypatch.setattr(Client, "send_apply_request", lose_the_first)
    monkeypatch.setattr(connection, "AGAIN_S", 1.0)
    start(timeout_s=90)
    assert len(lost) == 2
