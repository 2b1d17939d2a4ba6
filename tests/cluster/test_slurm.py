"""Ranks as jobs of a real SLURM: started, seen waiting, cancelled, killed, and always cleared."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import nbformat
import psutil
import pytest
import slurm_site

from tutorial_lib.cluster import (
    Cluster,
    DeadRankError,
    Ranks,
    StartError,
    cluster_status,
    launch,
    live_line,
)
from tutorial_lib.cluster.runtime import RUNTIME_VARIABLE, running

CHAPTER_S = 280
SLEEP = "import time; time.sleep(100)"


pytestmark = [
    pytest.mark.engines,
    pytest.mark.timeout(240),
    pytest.mark.skipif(bool(slurm_site.missing()), reason=slurm_site.missing() or "there is SLURM"),
]


@pytest.fixture(scope="module")
def site() -> Iterator[slurm_site.Site]:
    with slurm_site.running() as started:
        patch = pytest.MonkeyPatch()
        patch.setenv("SLURM_CONF", str(started.configuration))
        yield started
        patch.undo()


@pytest.fixture
def queue(site, wait_until, cluster_processes, runtime_base) -> Iterator[slurm_site.Site]:
    """The site with an empty queue, which a test must leave empty, with no process of a cluster."""
    yield site
    left = [] if wait_until(lambda: not site.queue(), 30) else site.queue()
    alive = [] if wait_until(lambda: not cluster_processes(), 10) else cluster_processes()
    folders = list((runtime_base / "gan-tutorial").glob("*"))
    site.clear()
    assert not left
    assert not alive
    assert not folders


@pytest.fixture
def change(monkeypatch) -> Callable[..., None]:
    """``change(partition="x")`` changes what the profile asks for."""
    original = launch.settings_of

    def use(**settings: object) -> None:
        monkeypatch.setattr(launch, "settings_of", lambda folder: {**original(folder), **settings})

    return use


def cluster(**options: object) -> Cluster:
    options = {"n": 2, "attach": False, "process_group": False, **options}
    return Cluster(profile="slurm", **options)  # type: ignore[arg-type]


def our_job(site: slurm_site.Site) -> slurm_site.Job:
    (job,) = [job for job in site.queue() if job.name.startswith("gan-tutorial-")]
    return job


def later(work: Callable[[], object], seconds: float = 1.5) -> threading.Thread:
    """Do something while a cell runs."""
    timer = threading.Timer(seconds, work)
    timer.start()
    return timer


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
    queue, repository, runtime_base, tmp_path
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
    assert queue.queue() == []


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
        (folder,) = running("slurm")
        supervisor = psutil.Process(folder.read_record().supervisor)
        (job,) = [p for p in supervisor.children() if "slurm.job" in " ".join(p.cmdline())]
        for process in (supervisor, job):
            if any(kind in " ".join(process.cmdline()) for kind in kinds):
                process.kill()
        assert wait_until(lambda: not queue.queue(), 30), queue.queue()
        with pytest.raises(DeadRankError):
            ranks.run("1")


def hog(site: slurm_site.Site) -> int:
    """Take all of the node with a job that does nothing."""
    script = ["--wrap", "sleep 1000", f"--ntasks={slurm_site.CORES}", "--output=/dev/null"]
    number = int(site.run("sbatch", "--parsable", "--job-name=hog", *script))
    deadline = time.monotonic() + 30
    while [job.state for job in site.queue()] != ["RUNNING"]:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return number


@pytest.fixture
def shown(monkeypatch) -> list[str]:
    """What the line that changes in place has shown."""
    texts: list[str] = []
    original = live_line.LiveLine.show
    monkeypatch.setattr(
        live_line.LiveLine, "show", lambda self, text: (texts.append(text), original(self, text))
    )
    return texts


def test_a_job_that_waits_says_why_and_its_wait_is_no_slow_start(queue, shown, wait_until):
    number = hog(queue)
    starting = cluster(timeout_s=25)
    free = later(lambda: queue.run("scancel", str(number)), 30)
    with starting as ranks:
        assert ranks.run("1") == {0: 1, 1: 1}
    free.join()
    waiting = [text for text in dict.fromkeys(shown) if "waits in the queue" in text]
    assert re.search(
        r"starting 2 ranks: job \d+ waits in the queue \(Resources: other jobs hold the nodes\)",
        "\n".join(waiting),
    ), shown


def test_a_job_that_waits_for_too_long_is_withdrawn_and_the_reason_told(queue, change):
    number = hog(queue)
    change(queue_timeout_s=6.0)
    with pytest.raises(StartError, match=r"job \d+ waits in the queue \(Resources") as error:
        cluster().start()
    assert "so it has been withdrawn" in str(error.value)
    assert "c.Ranks.queue_timeout_s" in str(error.value)
    assert [job.name for job in queue.queue()] == ["hog"]
    queue.run("scancel", str(number))


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_waiting_job_leaves_with_who_waits_for_it(queue, wait_until, tmp_path, is_killed):
    number = hog(queue)
    program = "from tutorial_lib.cluster import Cluster; Cluster(2, 'slurm', attach=False).start()"
    with (tmp_path / "log").open("w+") as log:
        waiting = subprocess.Popen([sys.executable, "-c", program], stdout=log, stderr=log)
    try:
        has_come = wait_until(lambda: len(queue.queue()) == 2 or waiting.poll() is not None, 60)
        assert has_come, "no second job"
        assert waiting.poll() is None, (tmp_path / "log").read_text()
    finally:
        waiting.send_signal(signal.SIGKILL if is_killed else signal.SIGINT)
        waiting.wait(30)
    assert wait_until(lambda: [job.name for job in queue.queue()] == ["hog"], 20), queue.queue()
    queue.run("scancel", str(number))


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
