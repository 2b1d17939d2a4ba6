"""Ranks as jobs of a real SLURM: started, cancelled, killed, and always cleared."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import nbformat
import psutil
import pytest
import slurm_site
from processes import command_line
from slurm_site import cluster, later

from tutorial_lib.cluster import (
    Cluster,
    DeadRankError,
    Ranks,
    StartError,
    cluster_status,
)
from tutorial_lib.cluster.runtime import RUNTIME_VARIABLE, running

CHAPTER_S = 280
SLEEP = "import time; time.sleep(100)"


pytestmark = [
    pytest.mark.engines,
    pytest.mark.timeout(240),
    pytest.mark.skipif(bool(slurm_site.missing()), reason=slurm_site.missing() or "there is SLURM"),
]


def our_job(site: slurm_site.Site) -> slurm_site.Job:
    ours = [job for job in site.queue() if job.name.startswith("gan-tutorial-")]
    (job,) = [job for job in ours if job.state != "COMPLETING"]  # as one that was cancelled is
    return job


def error_in_cell(ranks: Ranks, fault: Callable[[], object]) -> tuple[str, float]:
    """What a long cell's error says, and how many seconds after the fault."""
    began: list[float] = []

    def do() -> None:
        began.append(time.monotonic())
        fault()

    timer = later(do)
    with pytest.raises(DeadRankError) as error:
        ranks.run(SLEEP)
    took_s = time.monotonic() - began[0]
    timer.join()
    return str(error.value), took_s


@pytest.mark.notebooks
@pytest.mark.timeout(CHAPTER_S + 200)
def test_a_chapter_runs_unchanged_on_a_job_and_the_queue_is_empty_afterwards(
    queue, repository, runtime_base, tmp_path, wait_until
):
    environment = {
        **os.environ,
        RUNTIME_VARIABLE: str(runtime_base),
        "IPYTHONDIR": str(tmp_path / "ipython"),
        "GAN_TUTORIAL_STATE_DIR": str(tmp_path / "state"),
    }

    def call(*command: str, timeout_s: float = 120) -> str:
        done = subprocess.run(
            [sys.executable, "-m", *command],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        assert done.returncode == 0, done.stdout + done.stderr[-6000:]
        return done.stdout

    started = call("tutorial_lib.launcher.cli", "cluster", "start", "--profile", "slurm", "-n", "2")
    assert "slurm: 2 of 2 ranks" in started
    assert "by SLURM (pmi2)" in started
    job = our_job(queue)
    assert job.state == "RUNNING"

    chapter, executed = repository / "notebooks" / "04_distributed_gan.ipynb", tmp_path / "04.ipynb"
    values = {"num_engines": 2, "minibatches": 20, "output_dir": str(tmp_path / "outputs")}
    parameters = [word for name, value in values.items() for word in ("-p", name, str(value))]
    call("papermill", str(chapter), str(executed), *parameters, timeout_s=CHAPTER_S)
    text = executed.read_text()
    assert "joined the 2 ranks started by `gan-tutorial cluster start`" in text
    assert "2 generators, all equal to the last bit" in text
    assert not [
        cell
        for cell in nbformat.read(executed, as_version=4).cells
        if any(output.output_type == "error" for output in cell.get("outputs", []))
    ]
    assert our_job(queue) == job

    assert call("tutorial_lib.launcher.cli", "cluster", "stop", "--profile", "slurm") == (
        "stopped 1\n"
    )
    assert wait_until(lambda: not queue.queue(), 20), queue.queue()


def test_ranks_are_in_the_job_and_after_a_scancel_new_ones_in_a_new_one(queue):
    with cluster() as ranks:
        job = our_job(queue)
        numbers = ranks.run("import os; (int(os.environ['SLURM_JOB_ID']), os.getcwd())")
        assert {number for number, _ in numbers.values()} == {job.number}
        assert ranks.run("import mpi4py.MPI as m; m.COMM_WORLD.allreduce(1)") == {0: 2, 1: 2}
        assert "GAN_TUTORIAL_START" not in ranks.run("list(os.environ)")[0]

        message, took_s = error_in_cell(ranks, lambda: queue.run("scancel", str(job.number)))
        assert f"job {job.number} was cancelled" in message
        assert took_s < 20
        with pytest.raises(DeadRankError, match=f"job {job.number} was cancelled"):
            ranks.run("1")

        ranks.restart()
        assert our_job(queue).number != job.number
        assert ranks.run("1 + 1") == {0: 2, 1: 2}


def test_who_has_joined_hears_why_the_job_ended_too(queue, wait_until):
    start = "from tutorial_lib.cluster import start_cluster; start_cluster(2, 'slurm')"
    subprocess.run([sys.executable, "-c", start], check=True, timeout=120, capture_output=True)
    ranks = Cluster(n=2, profile="slurm", process_group=False).start()
    job = our_job(queue)
    message, _ = error_in_cell(ranks, lambda: queue.run("scancel", str(job.number)))
    assert f"job {job.number} was cancelled" in message
    ranks.stop()
    assert wait_until(lambda: not cluster_status("slurm"), 20)


def test_a_node_that_fails_is_named_as_such(queue):
    with cluster() as ranks:
        job = our_job(queue)
        down = ("scontrol", "update", f"NodeName={slurm_site.host()}", "State=DOWN", "Reason=test")
        message, _ = error_in_cell(ranks, lambda: queue.run(*down))
        assert f"job {job.number} lost a node that failed" in message


def test_a_dead_rank_is_told_apart_from_a_cancelled_job(queue):
    with cluster() as ranks:
        pids = ranks.run("import os; os.getpid()")
        message, _ = error_in_cell(ranks, lambda: os.kill(pids[1], signal.SIGKILL))
        assert "rank 1 has died (SIGKILL" in message


@pytest.mark.parametrize("kinds", [("supervisor",), ("slurm.job",), ("supervisor", "slurm.job")])
def test_whoever_is_killed_the_job_ends(queue, wait_until, kinds):
    with cluster() as ranks:
        ((_, record),) = running("slurm")
        supervisor = psutil.Process(record.supervisor)
        (job,) = [p for p in supervisor.children() if "slurm.job" in " ".join(command_line(p))]
        for process in (supervisor, job):
            if any(kind in " ".join(command_line(process)) for kind in kinds):
                process.kill()
        assert wait_until(lambda: not queue.queue(), 30), queue.queue()
        with pytest.raises(DeadRankError):
            ranks.run("1")


def test_what_slurm_refuses_is_quoted(queue, change):
    change(partition="nowhere", nodes=1)
    with pytest.raises(Exception, match=r"partition 'nowhere'|invalid partition"):
        cluster().start()
    change(options=["--time=nonsense"])
    with pytest.raises(StartError, match=r"SLURM did not take the job: sbatch: .*nonsense|time"):
        cluster().start()


def test_mpiexec_starts_the_ranks_of_a_job_as_well(queue, change):
    change(mpi="mpiexec")
    with cluster() as ranks:
        assert ranks.run("import mpi4py.MPI as m; m.COMM_WORLD.allreduce(1)") == {0: 2, 1: 2}
        assert our_job(queue).state == "RUNNING"


def test_ipyparallels_own_command_starts_ranks_that_a_notebook_joins(
    queue, repository, tmp_path, wait_until, monkeypatch
):
    profiles = tmp_path / "cluster_profiles"
    shutil.copytree(
        repository / "cluster_profiles", profiles, ignore=shutil.ignore_patterns("security", "log")
    )
    folder = profiles / "profile_slurm"

    def ipcluster(*arguments: str) -> None:
        subprocess.run(
            [sys.executable, "-m", "ipyparallel.cluster", *arguments, f"--profile-dir={folder}"],
            cwd=tmp_path,
            check=True,
            timeout=90,
            capture_output=True,
        )

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    ipcluster("start", "-n", "2", "--daemonize=True")
    try:
        assert wait_until(lambda: [job.state for job in queue.queue()] == ["RUNNING"], 60)
        files = folder / "security"
        assert wait_until(lambda: list(files.glob("ipcontroller*-client.json")), 30)
        found = Cluster(n=2, profile="slurm", process_group=False)
        assert wait_until(lambda: joins(found), 60)
        assert found.ranks.run("import mpi4py.MPI as m; m.COMM_WORLD.allreduce(1)") == {0: 2, 1: 2}
        found.stop()
    finally:
        ipcluster("stop")


def test_a_job_of_ones_own_checks_its_nodes(queue, tmp_path):
    program = [sys.executable, "-m", "tutorial_lib.cluster.preflight"]
    told = queue.run("srun", "--mpi=pmi2", "-n", "2", *program, "--checkpoint-dir", str(tmp_path))
    assert told.count("OK    Hosts") == 1
    assert "2 ranks on 1 host" in told


def joins(found: Cluster) -> bool:
    joined = found._join_running()
    if joined is not None:
        found.ranks = Ranks(joined, found.options)
    return joined is not None


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_a_time_limit_is_named_as_such(queue, change):
    change(time="1")  # minute
    with cluster() as ranks, pytest.raises(DeadRankError) as error:
        ranks.run("import time; time.sleep(250)")
    assert re.search(r"job \d+ reached its time limit \(1:00\)", str(error.value))
