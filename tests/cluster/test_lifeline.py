"""A lifeline ends with its holder, however that ends."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tutorial_lib.cluster import lifeline

HOLDER = """
import sys
from pathlib import Path
from tutorial_lib.cluster import lifeline
lifeline.hold(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""
WATCHER = """
import os, sys, time
from pathlib import Path
from tutorial_lib.cluster import lifeline
lifeline.watch(Path(sys.argv[1]), lambda: os._exit(7))
print("watching", flush=True)
time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    with start(HOLDER, tmp_path / "lifeline") as process:
        yield process
        process.kill()


def start(code: str, path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline().strip() in ("held", "watching")
    return process


def test_lifeline_is_held_until_its_holder_is_killed(
    holder: subprocess.Popen[str], tmp_path: Path
) -> None:
    path = tmp_path / "lifeline"
    assert lifeline.is_held(path)
    assert lifeline.is_held(path), "looking does not change it"
    ended = threading.Event()
    lifeline.watch(path, ended.set)
    assert not ended.wait(0.3)
    holder.kill()
    assert ended.wait(5)
    holder.wait()
    assert not lifeline.is_held(path)


def test_watcher_learns_of_the_end_although_the_file_is_gone(
    holder: subprocess.Popen[str], tmp_path: Path
) -> None:
    with start(WATCHER, tmp_path / "lifeline") as watcher:
        (tmp_path / "lifeline").unlink()
        holder.kill()
        assert watcher.wait(5) == 7


def test_no_file_is_no_life(tmp_path: Path) -> None:
    assert not lifeline.is_held(tmp_path / "never")
