"""Fixtures for tests of clusters: a private runtime folder, a kernel, what is left of a cluster."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import slurm_site
from jupyter_client.blocking import BlockingKernelClient
from jupyter_client.manager import KernelManager
from jupyter_core.utils import ensure_event_loop

from tutorial_lib.cluster import Cluster, Ranks, launch, where
from tutorial_lib.cluster.runtime import FOLDER_VARIABLE, RUNTIME_VARIABLE

Leftovers = Callable[[], list[str]]
WaitUntil = Callable[..., bool]
Output = dict[str, Any]
CELL_TIMEOUT_S = 60
INTERRUPT_AFTER_S = 0.3  # for ranks to get from a cell's first line to what it is about


class Notebook:
    """A kernel that executes cells and keeps what they put out, as a saved notebook would."""

    def __init__(self) -> None:
        self.manager = KernelManager(kernel_name="python3")
        self.manager.kernel_spec.argv[0] = sys.executable
        self.manager.start_kernel()
        self.client: BlockingKernelClient = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=CELL_TIMEOUT_S)
        self.sent_bytes = 0  # to the front end, by the last cell

    @property
    def pid(self) -> int:
        return int(self.manager.provisioner.pid)  # type: ignore[union-attr]

    def run(self, source: str) -> list[Output]:
        outputs: list[Output] = []
        by_display_id: dict[str, Output] = {}
        self.sent_bytes = 0
        is_stale = False

        def keep(message: dict[str, Any]) -> None:
            nonlocal is_stale
            kind, content = message["msg_type"], message["content"]
            self.sent_bytes += len(json.dumps(content))
            if is_stale and kind in ("stream", "error", "execute_result", "display_data"):
                is_stale = False
                outputs.clear()
            if kind in ("stream", "error", "execute_result"):
                outputs.append({"kind": kind, **content})
            elif kind == "display_data":
                outputs.append({"kind": kind, **content})
                if identity := content["transient"].get("display_id"):
                    by_display_id[identity] = outputs[-1]
            elif kind == "update_display_data":
                by_display_id[content["transient"]["display_id"]].update(content)
            elif kind == "clear_output":
                is_stale = content["wait"]
                if not is_stale:
                    outputs.clear()

        self.client.execute_interactive(source, output_hook=keep, timeout=CELL_TIMEOUT_S)
        return outputs

    def run_and_interrupt(self, source: str) -> tuple[list[Output], float]:
        """Run a cell, interrupt it when all ranks are at it, and say how long it then takes."""
        interrupted: list[float] = []
        is_over = threading.Event()

        def interrupt() -> None:
            wait(lambda: is_over.is_set() or are_all_at_work(), CELL_TIMEOUT_S)
            if not is_over.wait(INTERRUPT_AFTER_S):
                interrupted.append(time.monotonic())
                os.kill(self.pid, signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        try:
            outputs = self.run(source)
            ended = time.monotonic()
        finally:
            is_over.set()
            thread.join()
        assert interrupted, f"the cell ended by itself: {outputs}"
        return outputs, ended - interrupted[0]

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
        self.manager.cleanup_resources()
        ensure_event_loop().close()  # the one that the blocking client has opened


@pytest.fixture(scope="session")
def new_notebook() -> type[Notebook]:
    """Starts a kernel, for cells to be run in."""
    return Notebook


@pytest.fixture(scope="module")
def runtime_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runtime")


@pytest.fixture(scope="module", autouse=True)
def private_runtime(runtime_base: Path) -> Iterator[None]:
    """Keep the tests' clusters apart from those of whoever runs the tests."""
    patch = pytest.MonkeyPatch()
    patch.setenv(RUNTIME_VARIABLE, str(runtime_base))
    patch.setenv("OMP_NUM_THREADS", "1")
    yield
    patch.undo()


@pytest.fixture(scope="module")
def ranks(private_runtime: None) -> Iterator[Ranks]:
    """Two ranks, shared by the tests of a module."""
    with Cluster(n=2, process_group=False) as started:
        yield started


@pytest.fixture(scope="module")
def cluster_processes(runtime_base: Path) -> Callable[[], list[psutil.Process]]:
    """Lists the processes of all clusters whose folders lie in the tests' runtime folder."""

    def find() -> list[psutil.Process]:
        found = []
        inside = f"{runtime_base}{os.sep}"
        for process in psutil.process_iter():
            try:
                marks = [process.environ().get(FOLDER_VARIABLE, ""), *process.cmdline()]
                is_alive = process.status() != psutil.STATUS_ZOMBIE
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
            if is_alive and any(mark.startswith(inside) for mark in marks):
                found.append(process)
        return found

    return find


@pytest.fixture(scope="session")
def wait_until() -> WaitUntil:
    """Waits for a condition to hold, and says whether it did."""
    return wait


def wait(condition: Callable[[], object], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return bool(condition())


def are_all_at_work() -> bool:
    """Whether the ranks of all clusters are at a line of a cell."""
    places = [place for _, ranks in where() for place in ranks.values()]
    return bool(places) and all(place.site for place in places)


@pytest.fixture(scope="module")
def site() -> Iterator[slurm_site.Site]:
    with slurm_site.running() as started:
        patch = pytest.MonkeyPatch()
        patch.setenv("SLURM_CONF", str(started.configuration))
        yield started
        patch.undo()


@pytest.fixture
def queue(site, wait_until, cluster_processes, runtime_base) -> Iterator[slurm_site.Site]:
    """The site with an empty queue, which a test must leave empty, with no process of a cluster."""
    yield site
    left = [] if wait_until(lambda: not site.queue(), 30) else site.queue()
    alive = [] if wait_until(lambda: not cluster_processes(), 10) else cluster_processes()
    folders = list((runtime_base / "gan-tutorial").glob("*"))
    site.clear()
    assert not left
    assert not alive
    assert not folders


@pytest.fixture
def change(monkeypatch) -> Callable[..., None]:
    """``change(partition="x")`` changes what the profile asks for."""
    original = launch.settings_of

    def use(**settings: object) -> None:
        monkeypatch.setattr(launch, "settings_of", lambda folder: {**original(folder), **settings})

    return use
