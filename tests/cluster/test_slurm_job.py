"""The program that stands for a SLURM job, with programs of a few lines in place of SLURM's."""

from __future__ import annotations

import os
import stat
import subprocess
import sys

import pytest

from tutorial_lib.cluster import job_note, lifeline, runtime
from tutorial_lib.cluster.runtime import ClusterRecord
from tutorial_lib.cluster.slurm import commands, launch
from tutorial_lib.cluster.slurm.commands import SlurmError
from tutorial_lib.cluster.supervisor import Supervisor

STORM = """
import pathlib, signal, sys
from tutorial_lib.cluster.runtime import ClusterFolder
from tutorial_lib.cluster.slurm import commands, job
from tutorial_lib.cluster.slurm.states import read

looks = []

def state(number):
    looks.append(number)
    if len(looks) == 20:
        signal.raise_signal(signal.SIGTERM)
    return read(number, "COMPLETED|1:00|n1|None" if watch.is_told_to_end else "RUNNING|1:00|n1|")

def signal_at_each_line(frame, event, argument):
    if event == "line":
        signal.raise_signal(signal.SIGUSR1)
    return signal_at_each_line

commands.submit = lambda script, options: 17
commands.cancel = lambda number: None
commands.state = state
watch = job.SlurmJob(ClusterFolder(pathlib.Path(sys.argv[1])), 60)
watch.take_signals()
sys.settrace(signal_at_each_line)
status = watch.run("", [])
sys.settrace(None)
print(len(looks), status)
"""


def test_a_signal_at_any_line_of_the_watcher_does_no_harm(tmp_path):
    command = [sys.executable, "-c", STORM, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "20 0"


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """``fake("squeue", "echo ...")`` puts a program first on the PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def make(name: str, body: str) -> None:
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(stat.S_IRWXU)

    return make


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A cluster's folder whose lifeline this process holds."""
    monkeypatch.setenv(runtime.RUNTIME_VARIABLE, str(tmp_path))
    made = runtime.create("slurm")
    monkeypatch.setenv(runtime.FOLDER_VARIABLE, str(made.path))
    held = lifeline.hold(made.lifeline)
    yield made
    os.close(held)


def watch(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", launch.JOB_MODULE, *arguments, "--sbatch=-n2", "script"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_an_answer_of_sbatch_that_is_no_number_is_quoted(fake, folder):
    fake("sbatch", "echo Submitted; echo 'welcome!'")
    with pytest.raises(SlurmError, match=r"no number of a job in its answer .*welcome!"):
        commands.submit("script", [])
    done = watch("--queue-timeout=1")
    assert done.returncode == 1, done.stderr
    assert job_note.read(folder).why_ended.startswith("SLURM did not take the job: sbatch: no numb")
    fake("sbatch", "echo welcome; echo '17;cluster'")
    assert commands.submit("script", []) == 17


def test_a_wait_that_was_too_long_is_told_even_if_slurm_does_not_answer(fake, folder):
    fake("sbatch", "echo 17")
    fake("squeue", "echo 'PENDING|1:00||Resources'")
    fake("scancel", "echo 'scancel: error: Unable to contact slurm controller' >&2; exit 1")
    done = watch("--queue-timeout=0.1")
    assert done.returncode == 1, done.stderr
    assert "so it has been withdrawn" in job_note.read(folder).why_ended


@pytest.mark.parametrize("code", [0, 1, -9])
def test_a_job_is_cancelled_by_name_however_its_watcher_ended(folder, tmp_path, code):
    done = tmp_path / "cancelled"
    folder.write_record(
        ClusterRecord("slurm", 2, "here", "", "", {}, [], [], withdraw=["touch", str(done)])
    )
    supervisor = Supervisor(folder)
    supervisor.ended[99] = code
    supervisor._withdraw(99)
    assert done.exists()
