"""A cluster's folder is private, says what runs, and goes when its cluster has gone."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tutorial_lib.cluster import lifeline, runtime
from tutorial_lib.cluster.runtime import ClusterFolder, ClusterRecord


@pytest.fixture
def record() -> ClusterRecord:
    return ClusterRecord(
        profile="mpi",
        n=2,
        host=socket.gethostname(),
        python=sys.prefix,
        mpi="MPICH 5.0.2",
        environment={},
        controller_command=["controller"],
        engines_command=["mpiexec", "-n", "2"],
        supervisor=os.getpid(),
    )


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(runtime.RUNTIME_VARIABLE, str(tmp_path))
    return tmp_path


@pytest.fixture
def held(base: Path) -> Iterator[ClusterFolder]:
    """A folder whose lifeline this process holds."""
    folder = runtime.create("mpi")
    descriptor = lifeline.hold(folder.lifeline)
    yield folder
    os.close(descriptor)


def test_folder_is_private(base: Path) -> None:
    folder = runtime.create("mpi")
    for path in (folder.path.parent, folder.path, *folder.path.iterdir()):
        assert path.stat().st_mode & 0o077 == 0, path


def test_record_and_reports_come_back(base: Path, record: ClusterRecord) -> None:
    folder = runtime.create("mpi")
    folder.write_record(record)
    assert folder.read_record() == record
    assert folder.reports() == {}
    folder.report(1, "importing")
    folder.report(0, "importing")
    folder.report(1, "starting MPI")
    assert [(rank, note["stage"]) for rank, note in folder.reports().items()] == [
        (0, "importing"),
        (1, "starting MPI"),
    ]
    assert folder.reports()[0]["pid"] == os.getpid()


def test_log_tails_are_short_and_may_hold_anything(base: Path) -> None:
    folder = runtime.create("mpi")
    assert folder.log_tails() == {}
    folder.log("rank-0").write_bytes(b"first\n" + b"\xff" * 100_000 + b"\nlast\n")
    tail = folder.log_tails()["rank-0"]
    assert tail.endswith("last")
    assert "first" not in tail
    assert len(tail) <= runtime.LOG_TAIL_BYTES


@pytest.mark.parametrize("read", [ClusterFolder.endings, ClusterFolder.log_tails])
def test_folder_that_is_removed_while_it_is_read_has_nothing_in_it(
    held: ClusterFolder, read: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def vanished(folder: Path, pattern: str) -> Iterator[Path]:
        held.remove()
        yield from map(Path, os.scandir(folder))  # which fails

    monkeypatch.setattr(Path, "glob", vanished)
    assert read(held) == {}
    assert not held.path.exists()


def test_cluster_that_ends_while_somebody_lists_it_does_not_run(
    held: ClusterFolder, record: ClusterRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    held.write_record(record)
    monkeypatch.setattr(ClusterFolder, "is_alive", property(lambda found: not found.remove()))
    assert runtime.running() == []


def test_only_living_clusters_of_the_profile_are_running(
    held: ClusterFolder, record: ClusterRecord
) -> None:
    assert runtime.running() == []  # without a record it is still starting
    held.write_record(replace(record, supervisor=None))
    assert runtime.running() == []  # likewise
    held.write_record(record)
    dead = runtime.create("mpi")
    dead.write_record(record)
    assert runtime.running() == runtime.running("mpi") == [(held, record)]
    assert runtime.running("ssh") == []


def test_folders_of_killed_clusters_are_removed_and_new_ones_stay(
    held: ClusterFolder, record: ClusterRecord
) -> None:
    killed, starting = runtime.create("mpi"), runtime.create("mpi")
    for folder in (held, killed, starting):
        folder.write_record(record)
    elsewhere = runtime.create("mpi")
    elsewhere.write_record(replace(record, host="another"))
    long_ago = time.time() - 3600
    for folder in (killed, held, elsewhere):
        os.utime(folder.path, (long_ago, long_ago))
    runtime.create("mpi")
    for folder in (held, starting, elsewhere):
        assert folder.path.exists()
    assert not killed.path.exists()
    assert elsewhere not in dict(runtime.running())


def test_without_a_place_for_it_the_temporary_folder_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    monkeypatch.delenv(runtime.RUNTIME_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(blocked))
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    monkeypatch.setenv("HOME", str(blocked))
    monkeypatch.setattr(runtime.tempfile, "gettempdir", lambda: str(tmp_path))
    assert runtime.runtime_folder().is_relative_to(tmp_path)
    assert runtime.runtime_folder().stat().st_mode & 0o077 == 0
