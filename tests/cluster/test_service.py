"""Clusters that outlive who started them: by our own commands and by a real ipcluster."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tutorial_lib.cluster import (
    Cluster,
    ClusterError,
    cluster_status,
    start_cluster,
    stop_cluster,
)
from tutorial_lib.cluster.cluster import attach
from tutorial_lib.cluster.connection import open_client, running_clusters

pytestmark = pytest.mark.engines

IPCLUSTER = [sys.executable, "-m", "ipyparallel.cluster"]
PLACE = "from mpi4py import MPI\n(MPI.COMM_WORLD.rank, MPI.COMM_WORLD.allreduce(1))"


@pytest.fixture
def service(
    cluster_processes: Callable[[], list[psutil.Process]], runtime_base: Path
) -> Iterator[None]:
    """A cluster of two ranks that another process has started, and left."""
    code = "from tutorial_lib.cluster import start_cluster; print(start_cluster(2))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "mpi: 2 of 2 ranks" in run.stdout, run.stderr
    assert "2 ranks ready in" in run.stderr
    yield
    stop_cluster()
    assert not cluster_processes()
    assert not list(runtime_base.glob("gan-tutorial/*"))


def test_service_is_joined_and_outlives_its_guests(
    service: None, capsys: pytest.CaptureFixture[str]
) -> None:
    with Cluster(n=2, process_group=False) as ranks:
        assert (
            "joined the 2 ranks started by `gan-tutorial cluster start`" in capsys.readouterr().err
        )
        assert ranks.run(PLACE) == {0: (0, 2), 1: (1, 2)}
        assert set(ranks.run("import os; os.getcwd()").values()) == {os.getcwd()}
        ranks.push({"kept": 1})
        with Cluster(n=1, process_group=False) as own:  # cells of two guests could deadlock
            assert "another notebook or script uses it" in capsys.readouterr().err
            assert own.world_size == 1
    with Cluster(n=1, process_group=False) as ranks:
        assert "joined the 2 ranks (1 asked for)" in capsys.readouterr().err
        assert ranks.pull("kept") == {0: 1, 1: 1}


def test_each_guest_decides_whether_calls_are_compared(service: None) -> None:
    asked = "from tutorial_lib.distributed import mpi_backend\n"
    asked += "[group.is_checked for group in mpi_backend.groups()]"
    for is_wanted in (True, False, True):
        with Cluster(n=2, checks_calls=is_wanted) as ranks:
            assert ranks.run(asked) == {0: [is_wanted], 1: [is_wanted]}


def test_service_that_is_too_small_is_not_joined(
    service: None, capsys: pytest.CaptureFixture[str]
) -> None:
    with Cluster(n=3, process_group=False) as ranks:
        assert "it has 2 of the 3 engines asked for" in capsys.readouterr().err
        assert ranks.world_size == 3
        notebooks, services = [], []
        for status in cluster_status():
            (services if status.owner is None else notebooks).append(status)
        assert [status.engines for status in services] == [2]
        assert [(status.engines, status.owner) for status in notebooks] == [(3, os.getpid())]
        assert stop_cluster() == 1  # the service; a notebook's own cluster is left alone
        assert ranks.run("1", ranks=[2]) == {2: 1}


def test_busy_service_is_not_joined_and_not_disturbed(service: None, tmp_path: Path) -> None:
    (candidate,) = running_clusters("mpi")
    with open_client(candidate.client_file, 5) as client:
        work = client[:].apply_async(work_until_there_is, str(tmp_path / "refused"))
        with pytest.raises(ClusterError, match=r"engine \d is busy"):
            attach(candidate, 2)
        (tmp_path / "refused").touch()
        assert work.get(timeout=20) == ["done", "done"]


def work_until_there_is(file: str) -> str:
    import os
    import time

    while not os.path.exists(file):
        time.sleep(0.05)
    return "done"


def test_second_service_of_a_profile_is_refused(service: None) -> None:
    with pytest.raises(ClusterError, match="one runs already: mpi: 2 of 2 ranks"):
        start_cluster(2)


def test_guest_learns_that_the_service_was_stopped(service: None) -> None:
    with Cluster(n=2, process_group=False) as ranks:
        assert stop_cluster() == 1
        with pytest.raises(ClusterError, match=r"(has been stopped|has died).*run the cell"):
            ranks.run("import time; time.sleep(30)")


def test_nothing_runs_and_nothing_is_stopped() -> None:
    assert cluster_status() == []
    assert stop_cluster() == 0


def ipcluster(*arguments: str, home: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    run = subprocess.run(
        [*IPCLUSTER, *arguments],
        cwd=home,
        env={**environment, "IPYTHONDIR": str(home / "ipython")},
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert run.returncode == 0, run.stderr


@pytest.fixture
def no_ipcluster_left(tmp_path: Path, wait_until: Callable[..., bool]) -> Iterator[None]:
    yield

    def left() -> list[list[str]]:
        lines = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("IPYTHONDIR") == str(tmp_path / "ipython"):
                    lines.append(process.cmdline())
        return [line for line in lines if line]

    assert wait_until(lambda: not left(), 15), left()


@pytest.mark.usefixtures("no_ipcluster_left")
def test_bare_ipcluster_starts_more_ranks_than_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., bool]
) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    ipcluster("start", "--engines=mpi", "-n", "4", "--daemonize", home=tmp_path)
    try:
        assert wait_until(lambda: [s.engines for s in cluster_status("default")] == [4], 60)
        with Cluster(n=4, profile="default", process_group=False) as ranks:
            assert ranks.run(PLACE) == {rank: (rank, 4) for rank in range(4)}
    finally:
        ipcluster("stop", home=tmp_path)


@pytest.mark.usefixtures("no_ipcluster_left")
def test_ipcluster_with_our_profile_is_joined_and_git_sees_nothing_of_it(
    tmp_path: Path,
    repository: Path,
    monkeypatch: pytest.MonkeyPatch,
    wait_until: Callable[..., bool],
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # our profile finds mpiexec beside the interpreter
    profile = repository / "cluster_profiles" / "profile_mpi"
    before = git_status(repository)
    ipcluster("start", f"--profile-dir={profile}", "-n", "4", "--daemonize", home=tmp_path)
    try:
        assert wait_until(lambda: [s.engines for s in cluster_status("mpi")] == [4], 60)
        assert git_status(repository) == before
        with Cluster(n=4, process_group=False) as ranks:
            assert "started by ipcluster" in capsys.readouterr().err
            assert ranks.run(PLACE) == {rank: (rank, 4) for rank in range(4)}
            assert [row.threads for row in ranks.status()] == [1] * 4
    finally:
        assert stop_cluster("mpi") == 1
    assert cluster_status("mpi") == []


def git_status(repository: Path) -> str:
    command = ["git", "status", "--porcelain", "--", "cluster_profiles"]
    return subprocess.run(command, cwd=repository, capture_output=True, text=True).stdout
