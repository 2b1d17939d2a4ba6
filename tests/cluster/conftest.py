"""Fixtures for tests of clusters: a private runtime folder, and what is left of a cluster."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tutorial_lib.cluster import Cluster, Ranks
from tutorial_lib.cluster.runtime import FOLDER_VARIABLE, RUNTIME_VARIABLE

Leftovers = Callable[[], list[str]]
WaitUntil = Callable[..., bool]


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


@pytest.fixture
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

    def wait(condition: Callable[[], object], timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if condition():
                return True
            time.sleep(0.05)
        return bool(condition())

    return wait
