"""The parent of an engine: it waits for the engine's end, notes how that came, and clears up.

Nobody else can tell. mpiexec kills the other ranks when one has died, and then names whichever
stands first in its own list. MPI's files in /dev/shm stay when ranks are killed, and so does what
a rank has started; on Linux the warden inherits that, and ends it.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from tutorial_lib.cluster.process import adopt_orphans, die_with_parent, send_signal
from tutorial_lib.cluster.runtime import ClusterFolder

if TYPE_CHECKING:
    import psutil

PASSED_ON = (signal.SIGTERM, signal.SIGHUP)
ORPHANS_GRACE_S = 0.5  # some that a rank starts clear up after it, as multiprocessing's do
KILL_GRACE_S = 2.0
POLL_S = 0.02

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
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)  # until the warden can pass them on
    engine = os.fork()
    if engine == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
        os.close(read_end)
        die_with_parent(warden, signal.SIGKILL)
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


def spare() -> None:
    """Have this process left to end by itself; called by one that the engine has forked."""
    _tell(spared=os.getpid())


def end_orphans(find: Callable[[], Iterable[psutil.Process]]) -> None:
    """Kill what a dead engine has started, if it does not end by itself soon.

    Args:
        find: Lists those that live.
    """
    import psutil  # late: an engine has no use for it, and starts sooner without

    kill_at = time.monotonic() + ORPHANS_GRACE_S
    # A process that ends while they are listed hides its children from that look.
    while (orphans := list(find()) or list(find())) and time.monotonic() < kill_at + KILL_GRACE_S:
        for orphan in orphans if time.monotonic() > kill_at else ():
            with contextlib.suppress(psutil.Error):
                orphan.kill()
        time.sleep(POLL_S)


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


def _wait(rank: int, engine: int, read_end: int) -> None:
    def pass_on(number: int, frame: FrameType | None) -> None:
        send_signal(engine, number)

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's reaches the engine by itself
    for number in PASSED_ON:
        signal.signal(number, pass_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
    adopt_orphans()
    while (ended := os.waitpid(-1, 0))[0] != engine:
        pass  # an orphan of the engine's family
    code = os.waitstatus_to_exitcode(ended[1])
    told: dict[str, Any] = {}
    spared = set()
    os.set_blocking(read_end, False)
    with contextlib.suppress(OSError):  # what the engine has forked may hold the pipe still
        for line in os.read(read_end, 2**16).splitlines():
            told.update(fact := json.loads(line))
            spared.add(fact.get("spared"))
    with contextlib.suppress(OSError):
        if folder := told.get("folder"):
            ClusterFolder(Path(folder)).note_end(rank, engine, code, time.time())
    end_orphans(lambda: (child for child in _family() if child.pid not in spared))
    for file in told.get("shared_memory", ()):
        Path(file).unlink(missing_ok=True)
    if code < 0:  # end likewise, for whoever waits for this process
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError):  # of SIGKILL
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code & 0xFF)


def _family() -> list[psutil.Process]:
    """What descends from this process, and lives."""
    import psutil

    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    family: list[psutil.Process] = psutil.Process().children(recursive=True)
    return family
