"""Ranks from the shell, and a notebook's program that joins them."""

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


def test_a_profile_that_there_is_not_is_a_mistake(cluster):
    run = cluster("start", "--profile", "nope")
    assert run.returncode == 1
    assert "'mpi'" in run.stderr
    assert "Traceback" not in run.stderr
