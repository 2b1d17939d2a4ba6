"""Ranks from the shell, and a notebook's program that joins them."""

import os
import subprocess
import sys

import pytest

from tutorial_lib.cluster.runtime import RUNTIME_VARIABLE

# Blind for what ipcluster runs from this clone's profile: a test must not stop the user's ranks.
COMMAND_LINE = """
from tutorial_lib.cluster import service
from tutorial_lib.launcher.cli import main
service.profile_folders = lambda profile: []
main()
"""

# Rank 1 works while rank 0 is done; another process asks.
NOTEBOOK = """
import sys, threading
from tutorial_lib.cluster import Cluster
CELL = '''
import time
if MPI.COMM_WORLD.rank == 1:
    time.sleep(60)
'''
with Cluster(n=2, attach=False, process_group=False) as ranks:
    ranks.run("from mpi4py import MPI")
    threading.Thread(target=ranks.run, args=(CELL,), daemon=True).start()
    while ranks.where()[1].call != "time.sleep":
        pass
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def cluster(tmp_path, jupyter_home):
    """``cluster("start", ...)`` runs a cluster command, apart from any other ranks of the user."""
    environment = {**jupyter_home, RUNTIME_VARIABLE: str(tmp_path), "OMP_NUM_THREADS": "1"}

    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-c", COMMAND_LINE, "cluster", *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=80,
        )

    yield run
    run("stop")


@pytest.mark.engines
def test_ranks_start_are_seen_are_not_started_twice_and_stop(cluster):
    assert cluster("status").returncode == 1
    started = cluster("start", "-n", "2")
    assert started.returncode == 0, started.stderr
    assert "2 of 2 ranks" in started.stdout
    assert cluster("status").stdout == started.stdout
    again = cluster("start", "-n", "2")
    assert again.returncode == 1
    assert again.stderr.startswith("gan-tutorial: one runs already")
    assert cluster("stop").stdout == "stopped 1\n"
    assert cluster("status").stdout == "no ranks are running\n"
    assert cluster("stop").stdout == "nothing to stop\n"


@pytest.mark.engines
def test_ranks_say_from_a_terminal_where_they_are(cluster, tmp_path):
    nobody = cluster("where")
    assert (nobody.returncode, nobody.stdout) == (1, "no ranks are running\n")
    notebook = subprocess.Popen(
        [sys.executable, "-c", NOTEBOOK],
        env={**os.environ, RUNTIME_VARIABLE: str(tmp_path), "OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with notebook:
        assert notebook.stdout.readline() == "ready\n"
        said = cluster("where")
        notebook.stdin.close()  # it ends
    assert said.returncode == 0, said.stderr
    title, *places = said.stdout.splitlines()
    assert title == "mpi: 2 ranks, started by a notebook or script"
    assert [line for line in places if not line.startswith(" ")] == [
        "rank 0 has nothing to do: it has finished, or this cell is not for it",
        "rank 1 is at line 4 of the cell (time.sleep)",
    ]


def test_a_profile_that_there_is_not_is_a_mistake(cluster):
    run = cluster("start", "--profile", "nope")
    assert run.returncode == 1
    assert "there are mpi, " in run.stderr
    assert "Traceback" not in run.stderr
