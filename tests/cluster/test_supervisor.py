"""A supervisor's own patience: with a controller that starts, and with parts that do not end."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tutorial_lib.cluster import runtime, service, supervised, supervisor, warden
from tutorial_lib.cluster.runtime import ClusterRecord
from tutorial_lib.cluster.supervisor import Supervisor


@pytest.fixture
def watcher() -> Iterator[Supervisor]:
    """A supervisor that has started nothing yet."""
    folder = runtime.create("test")
    folder.write_record(
        ClusterRecord(
            profile="test",
            n=1,
            host="here",
            python=sys.prefix,
            mpi="",
            environment={},
            controller_command=[],
            engines_command=[],
        )
    )
    yield Supervisor(folder)
    folder.remove()


class Clock(SimpleNamespace):
    """Time that passes at once."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_owner_waits_for_the_slowest_end(
    watcher: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()

    def hang(command: list[str], timeout: float, **options: Any) -> None:
        clock.sleep(timeout)
        raise subprocess.TimeoutExpired(command, timeout)

    process = SimpleNamespace(pid=2)
    links: Any = SimpleNamespace(
        end_ranks=lambda: None, close=lambda: None, rank_that_left=lambda: 0, silent=lambda s: ""
    )
    watcher.record = replace(watcher.record, withdraw=["scancel", "me"])
    watcher._links = links
    monkeypatch.setattr(supervisor, "time", clock)
    monkeypatch.setattr(supervisor, "send_signal", lambda pid, number: None)
    monkeypatch.setattr(supervisor, "_descendants", lambda: [process])
    monkeypatch.setattr(watcher, "_reap", lambda: None)
    monkeypatch.setattr(watcher, "_rank_that_left", lambda: 0)
    monkeypatch.setattr(subprocess, "run", hang)
    assert watcher._watch(controller=1, engines=2) == "rank 0's process has ended"
    watcher._end_all(controller=1, engines=2)
    assert clock.now > 15
    assert clock.now < supervised.STOP_TIMEOUT_S
    assert clock.now < service.STOP_TIMEOUT_S


def test_controller_is_ready_once_its_file_is_whole(
    watcher: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "_reap", lambda: None)
    file = watcher.folder.engine_file
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(watcher._watch(controller=1)))
    thread.start()
    # ipyparallel opens the file first, and then writes.
    for part in ("", '{"key": "ab'):
        file.write_text(part)
        time.sleep(5 * supervisor.POLL_S)
        assert not found
    file.write_text('{"key": "abc"}')
    thread.join(30)
    assert found == [""]


@pytest.mark.parametrize(
    ("code", "rank_code", "said"),
    [
        (9, -9, "rank 1 has died (SIGKILL: killed from outside; out of memory?)"),
        (3, 3, "rank 1 has died (exit status 3: it ended by itself)"),
        (-9, -9, "mpiexec has ended with signal SIGKILL"),
        (143, -15, "mpiexec has ended with exit status 143"),
        (0, 0, "mpiexec has ended with exit status 0"),
    ],
)
def test_a_rank_is_blamed_for_the_end_of_mpiexec_unless_that_was_ended(
    watcher: Supervisor, monkeypatch: pytest.MonkeyPatch, code: int, rank_code: int, said: str
) -> None:
    for rank, ended_at in ((0, 11.0), (1, 10.0)):  # mpiexec kills the others after it
        watcher.folder.note_end(rank, pid=rank + 1, code=rank_code, time=ended_at)
    monkeypatch.setattr(supervisor.stop_limits, "NOTIFICATION_S", 0)
    monkeypatch.setattr(watcher, "_reap", lambda: None)
    watcher.ended = {2: code}
    assert watcher._watch(controller=1, engines=2) == said


def test_last_process_counts_though_one_look_misses_it(
    watcher: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    orphan: Any = SimpleNamespace(pid=2**30)
    looks = iter([[], [orphan]])
    monkeypatch.setattr(supervisor, "_descendants", lambda: next(looks, []))
    watcher._end_all(None, None)
    assert next(looks, "all taken") == "all taken"
    looks = iter([[], [orphan]])
    warden.end_orphans(lambda: next(looks, []))
    assert next(looks, "all taken") == "all taken"
