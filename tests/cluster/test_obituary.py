"""Which rank died first, and why, from notes of their ends."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tutorial_lib.cluster import runtime, warden
from tutorial_lib.cluster.obituary import first_death, in_words
from tutorial_lib.cluster.remote import away
from tutorial_lib.cluster.runtime import ClusterFolder

ENDINGS = {
    0: {"rank": 0, "code": -9, "time": 12.5},
    2: {"rank": 2, "code": -11, "time": 12.4},
    3: {"rank": 3, "code": -15, "time": 12.6},
}


def test_first_to_die_is_the_cause() -> None:
    assert first_death(lambda: ENDINGS, 0) == (2, "SIGSEGV: a memory error in native code")
    assert first_death(dict, 1, timeout_s=0.1) == (1, "")


def test_note_of_a_rank_is_waited_for() -> None:
    readings = iter([{}, {0: ENDINGS[0]}, ENDINGS])
    assert first_death(lambda: next(readings), 2)[0] == 2


def test_endings_in_words() -> None:
    assert in_words(-9) == "SIGKILL: killed from outside; out of memory?"
    assert in_words(3) == "exit status 3: it ended by itself"
    assert in_words(-63) == "signal 63"


ENGINE = """
import os, signal, sys
from pathlib import Path
from tutorial_lib.cluster import warden
from tutorial_lib.cluster.runtime import ClusterFolder
launched = os.getpid()
warden.stand_by(2)
assert os.getpid() != launched
warden.note_folder(ClusterFolder(Path(sys.argv[1])))
print(os.getpid(), flush=True)
"""


@pytest.mark.parametrize(
    ("death", "code"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", -9),
        ("os.kill(os.getppid(), signal.SIGTERM); signal.pause()", -15),
        ("os._exit(3)", 3),
        ("", 0),
    ],
)
def test_warden_notes_the_end_and_ends_likewise(tmp_path: Path, death: str, code: int) -> None:
    (tmp_path / "ranks").mkdir()
    command = [sys.executable, "-c", f"{ENGINE}\n{death}", str(tmp_path)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == code
    (note,) = ClusterFolder(tmp_path).endings().values()
    assert (note["rank"], note["code"], note["pid"]) == (2, code, int(done.stdout))


def test_engine_ends_with_a_warden_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "ranks").mkdir()
    code = f"{ENGINE}\nos.kill(os.getppid(), signal.SIGKILL)\nsignal.pause()"
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == -9  # and the pipe of its output has been closed


def test_warden_removes_what_is_left_in_shared_memory(tmp_path: Path) -> None:
    left, gone = tmp_path / "left", tmp_path / "gone"
    left.touch()
    code = f"{ENGINE}\nwarden.clear_up([{str(left)!r}, {str(gone)!r}])\nos._exit(3)"
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], timeout=60, check=False)
    assert not left.exists()


ORPHAN = """
import subprocess, time
program = [sys.executable, "-c", "import time; time.sleep(600)"]
shell = "import subprocess, sys; print(subprocess.Popen(sys.argv[1:]).pid, flush=True)"
subprocess.run([sys.executable, "-c", shell, *program], check=True)  # a child's, which has ended
print(subprocess.Popen(program, start_new_session=True).pid, flush=True)
child = os.fork()
if child == 0:
    warden.spare()
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(2)
    print("spared", flush=True)
    os._exit(0)
signal.pause()
"""


def test_warden_ends_what_a_killed_engine_has_started(tmp_path: Path) -> None:
    (tmp_path / "ranks").mkdir()
    command = [sys.executable, "-c", f"{ENGINE}\n{ORPHAN}", str(tmp_path)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == -9
    _, *orphans, spared = done.stdout.split()  # nobody holds the pipe any more
    assert len(orphans) == 2
    assert not [pid for pid in orphans if psutil.pid_exists(int(pid))]
    assert spared == "spared"


def test_programs_of_a_rank_are_found_and_ended_by_its_folder(tmp_path: Path) -> None:
    """When mpiexec kills the warden too."""
    environment = {**os.environ, runtime.FOLDER_VARIABLE: str(tmp_path)}
    started = subprocess.Popen(["sleep", "600"], env=environment)
    begun = time.monotonic()
    warden.end_orphans(lambda: away.processes(ClusterFolder(tmp_path)))
    assert started.wait(30) == -9
    assert time.monotonic() - begun > warden.ORPHANS_GRACE_S, "it may end by itself"
    assert away.processes(ClusterFolder(tmp_path)) == []
