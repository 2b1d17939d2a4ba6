"""The program that stands for a SLURM job, with programs of a few lines in place of SLURM's."""

from __future__ import annotations

import subprocess
import sys

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
