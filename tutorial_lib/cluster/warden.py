"""The parent of an engine: it waits for the engine's end, notes how that came, and clears up.

Nobody else can tell. mpiexec kills the other ranks when one has died, and then names whichever
stands first in its own list. And MPI's files in /dev/shm stay when ranks are killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

from tutorial_lib.cluster.runtime import ClusterFolder

PASSED_ON = (signal.SIGTERM, signal.SIGHUP)

_write_end = -1


def stand_by(rank: int) -> None:
    """Split into the warden, which does not return, and the engine, which goes on.

    To be called before threads and sockets exist.

    Args:
        rank: As its launcher says.
    """
    global _write_end
    warden = os.getpid()
    read_end, _write_end = os.pipe()
    engine = os.fork()
    if engine == 0:
        os.close(read_end)
        _end_with(warden)
        return
    os.close(_write_end)
    _wait(rank, engine, read_end)


def note_folder(folder: ClusterFolder) -> None:
    """Tell the warden where to note the end; called by the engine.

    Args:
        folder: Of its cluster.
    """
    _tell(folder=str(folder.path))


def clear_up(shared_memory: list[str]) -> None:
    """Tell the warden which files to remove if they are left; called by the engine.

    Args:
        shared_memory: Paths.
    """
    _tell(shared_memory=shared_memory)


def shared_memory() -> list[str]:
    """The files in /dev/shm that this process has mapped; none where there is no such folder."""
    files = set()
    with contextlib.suppress(OSError), open("/proc/self/maps", encoding="utf-8") as maps:
        for line in maps:
            *_, path = line.split(maxsplit=5)
            if path.startswith("/dev/shm/") and not path.endswith(" (deleted)\n"):
                files.add(path.rstrip("\n"))
    return sorted(files)


def _tell(**facts: object) -> None:
    os.write(_write_end, json.dumps(facts).encode() + b"\n")


def _end_with(warden: int) -> None:
    """Have this process killed when its parent is killed; on Linux."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != warden:
            os._exit(1)


def _wait(rank: int, engine: int, read_end: int) -> None:
    def pass_on(number: int, frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(engine, number)

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's reaches the engine by itself
    for number in PASSED_ON:
        signal.signal(number, pass_on)
    _, status = os.waitpid(engine, 0)
    code = os.waitstatus_to_exitcode(status)
    told: dict[str, Any] = {}
    os.set_blocking(read_end, False)
    with contextlib.suppress(OSError):  # what the engine has forked may hold the pipe still
        for line in os.read(read_end, 2**16).splitlines():
            told.update(json.loads(line))
    with contextlib.suppress(OSError):
        if folder := told.get("folder"):
            ClusterFolder(Path(folder)).note_end(rank, engine, code, time.time())
    for file in told.get("shared_memory", ()):
        Path(file).unlink(missing_ok=True)
    if code < 0:  # end likewise, for whoever waits for this process
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError):  # of SIGKILL
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code & 0xFF)
