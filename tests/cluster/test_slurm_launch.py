"""What is asked of SLURM, how its answers read, and which waits count: without any SLURM."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tutorial_lib.cluster import ClusterError, job_note
from tutorial_lib.cluster.errors import HostsError
from tutorial_lib.cluster.job_note import JobNote, StartLimit
from tutorial_lib.cluster.launch import CONFIG_FILE, Request, settings_of
from tutorial_lib.cluster.mpi_flavour import MpiFlavour
from tutorial_lib.cluster.runtime import ClusterFolder
from tutorial_lib.cluster.slurm import commands, launch
from tutorial_lib.cluster.slurm.states import JobState, read

MPICH = MpiFlavour("mpiexec", "MPICH", (5, 0, 2))
OPEN_MPI = MpiFlavour("mpirun", "Open MPI", (5, 0, 2))


@pytest.mark.parametrize(
    ("line", "text", "is_waiting", "is_over", "is_outside"),
    [
        ("PENDING|1:00:00||Resources", "waits in the queue (Resources: other jobs hold the nodes)",
         True, False, False),
        ("PENDING|1:00:00||(PartitionTimeLimit)", "waits in the queue (PartitionTimeLimit: it asks "
         "for more time than the partition gives: ask for less)", True, False, False),
        ("PENDING|UNLIMITED||None", "waits in the queue", True, False, False),
        ("PENDING|1:00||ReqNodeNotAvail, Unavailable:n1", "waits in the queue "
         "(ReqNodeNotAvail: nodes that it needs are down, drained or reserved)", True, False,
         False),
        ("PENDING|1:00||SomethingNew", "waits in the queue (SomethingNew)", True, False, False),
        ("CONFIGURING|1:00|n[1-2]|None", "has got nodes (n[1-2]), which are being started", True,
         False, False),
        ("RUNNING|1:00|n[1-2]|None", "runs on n[1-2]", False, False, False),
        ("SUSPENDED|1:00|n1|None", "is suspended", False, False, False),
        ("COMPLETING|1:00|n1|None", "runs on n1", False, False, False),
        ("COMPLETED|1:00|n1|None", "has ended", False, True, False),
        ("FAILED|1:00|n1|NonZeroExitCode", "has failed", False, True, False),
        ("CANCELLED|1:00|n1|None", "was cancelled", False, True, True),
        ("TIMEOUT|1:00|n1|TimeLimit", "reached its time limit (1:00)", False, True, True),
        ("NODE_FAIL|1:00|n1|NodeDown", "lost a node that failed", False, True, True),
        ("OUT_OF_MEMORY|1:00|n1|OutOfMemory", "ran out of memory", False, True, True),
        ("PREEMPTED|1:00|n1|None", "was ended for a job that came first", False, True, True),
        ("", "has ended", False, True, False),
    ],
)  # fmt: skip
def test_states_in_words(line, text, is_waiting, is_over, is_outside):
    state = read(17, line)
    assert str(state) == f"job 17 {text}"
    assert (state.is_waiting, state.is_over) == (is_waiting, is_over)
    assert state.is_ended_from_outside == is_outside
    assert str(state).startswith(job_note.JOB)


def test_what_is_filled_in_becomes_an_option_and_what_is_empty_does_not():
    assert launch.sbatch_options({}, 4) == [
        *("--ntasks=4", "--no-requeue", "--export=ALL", "--chdir=/", "--output=/dev/null"),
    ]
    filled = {
        **{"partition": "gpu", "account": "physics", "nodes": 2, "gpus": 4, "time": "1:00:00"},
        "options": ["--qos=debug"],
    }
    assert launch.sbatch_options(filled, 8)[5:] == [
        *("--partition=gpu", "--account=physics", "--nodes=2", "--gres=gpu:4", "--time=1:00:00"),
        "--qos=debug",
    ]
    with pytest.raises(ClusterError, match="write a list"):
        launch.sbatch_options({"options": "--qos=debug"}, 1)


@pytest.mark.parametrize(
    ("mpi", "wanted", "offered", "kind"),
    [
        (MPICH, "", {"pmi2", "pmix", "none"}, "pmi2"),
        (MPICH, "", {"pmix", "none"}, "mpiexec"),
        (OPEN_MPI, "", {"pmi2", "pmix"}, "pmix"),
        (OPEN_MPI, "", {"pmi2"}, "mpiexec"),
        (MpiFlavour("m", "unknown MPI", ()), "", {"pmi2"}, "mpiexec"),
        (MPICH, "mpiexec", {"pmi2"}, "mpiexec"),
        (OPEN_MPI, "pmi2", {"pmi2"}, "pmi2"),
    ],
)
def test_ranks_of_a_job_are_started_in_a_language_that_both_speak(mpi, wanted, offered, kind):
    assert launch.mpi_kind(mpi, wanted, offered) == kind
    command = launch.rank_command(mpi, kind, 4, ["python", "x.py"])
    assert command[-2:] == ["python", "x.py"]
    if kind == "mpiexec":
        assert command[0] == mpi.mpiexec
    else:
        assert {f"--mpi={kind}", "--ntasks=4", "--kill-on-bad-exit=1"} <= set(command)


def test_a_language_that_srun_does_not_speak_is_refused():
    with pytest.raises(ClusterError, match=r"'pmix', but `srun --mpi=list` has none, pmi2"):
        launch.mpi_kind(OPEN_MPI, "pmix", {"none", "pmi2"})


@pytest.mark.parametrize(
    ("launcher", "name", "known"),
    [
        ("slurm", "partion", "account, device, gpus, launcher, mpi, nodes, options, partition,"),
        ("ssh", "host", "device, hosts, launcher, silence_s"),
        ("mpiexec", "hosts", "device, launcher"),
    ],
)
def test_a_misspelt_setting_is_refused_with_the_known_ones(tmp_path, launcher, name, known):
    path = tmp_path / CONFIG_FILE
    path.write_text(f"c = get_config()\nc.Ranks.launcher = {launcher!r}\nc.Ranks.{name} = 'gpu'\n")
    with pytest.raises(ClusterError) as error:
        settings_of(tmp_path)
    assert str(error.value).startswith(f"{path}: c.Ranks.{name} is not known to the launcher")
    assert known in str(error.value)


def test_the_profiles_that_come_along_have_known_settings_only(repository):
    for path in (repository / "cluster_profiles").glob("*"):
        settings_of(path)


def test_hosts_are_slurms_to_choose(tmp_path):
    with pytest.raises(HostsError, match="--nodelist"):
        launch.plan(Request(tmp_path, {}, 2, ("x",), "node1:2"))


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """``fake("squeue", "echo ...")`` puts a program on an otherwise empty PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def make(name: str, body: str) -> None:
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(stat.S_IRWXU)

    return make


def test_where_there_is_no_slurm_it_says_so(fake):
    for ask in (commands.mpi_types, commands.node_addresses):
        with pytest.raises(ClusterError, match="on the PATH: start the ranks where SLURM's"):
            ask()


def test_what_srun_speaks_is_read_wherever_it_says_so(fake):
    fake("srun", "printf 'MPI plugin types are...\\n\\tpmix\\n\\tnone\\n\\tpmi2\\n' >&2")
    assert commands.mpi_types() == {"pmix", "none", "pmi2"}
    fake("srun", "echo 'srun: MPI types are... srun: none srun: pmi2'")
    assert commands.mpi_types() == {"none", "pmi2"}


def test_a_command_that_fails_or_hangs_is_quoted_in_time(fake):
    fake("squeue", "echo 'squeue: error: slurm_load_jobs: Unable to contact' >&2; exit 1")
    with pytest.raises(ClusterError, match="squeue: slurm_load_jobs: Unable to contact"):
        commands.state(17)
    fake("sleepy", "exec /bin/sleep 20")
    began = time.monotonic()
    with pytest.raises(ClusterError, match=r"did not answer within 0\.5 s"):
        commands.run("sleepy", timeout_s=0.5)
    assert time.monotonic() - began < 10


def test_a_job_that_slurm_has_forgotten_has_ended(fake):
    fake("squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    fake(
        "scancel", "echo 'scancel: error: Kill job error on job id 17: Invalid job id' >&2; exit 1"
    )
    assert commands.state(17) == JobState(17, "")
    commands.cancel(17)


def test_nodes_are_told_once_and_of_the_partition(fake):
    fake("sinfo", 'case "$*" in *--partition=gpu*) echo n1; echo n1; echo n2;; *) ;; esac')
    assert commands.node_addresses("gpu") == ["n1", "n2"]
    with pytest.raises(ClusterError, match="no nodes"):
        commands.node_addresses()


def test_a_job_around_this_process_does_not_leak_into_the_new_one(fake, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "5")
    monkeypatch.setenv("SLURM_NTASKS", "64")
    monkeypatch.setenv("PMI_RANK", "3")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm/slurm.conf")
    monkeypatch.setenv("SBATCH_ACCOUNT", "physics")
    fake("env", "exec /usr/bin/env")
    names = {line.split("=")[0] for line in commands.run("env").splitlines()}
    assert {"SLURM_CONF", "SBATCH_ACCOUNT"} <= names
    assert not {"SLURM_JOB_ID", "SLURM_NTASKS", "PMI_RANK"} & names


def folder_in(path: Path) -> ClusterFolder:
    return ClusterFolder(path)


def test_time_in_the_queue_is_no_slow_start(tmp_path, monkeypatch):
    clock = SimpleNamespace(now=0, monotonic=lambda: clock.now)
    monkeypatch.setattr(job_note, "time", clock)
    folder = folder_in(tmp_path)
    limit = StartLimit(30, folder)
    job_note.write(folder, JobNote("job 17 waits in the queue", is_waiting=True))
    clock.now += 40
    assert limit.look() == "job 17 waits in the queue"
    assert limit.left_s == 30
    job_note.write(folder, JobNote("job 17 runs on n1"))
    assert limit.look() == ""
    clock.now += 40
    assert limit.look() == ""
    assert limit.left_s == -10
    assert StartLimit(5, None).look() == ""


def test_notes_are_private_whole_and_gone_with_the_folder(tmp_path):
    folder = folder_in(tmp_path)
    assert job_note.read(folder) == JobNote()
    note = JobNote("job 17 was cancelled", why_ended="job 17 was cancelled")
    job_note.write(folder, note)
    assert job_note.read(folder) == note
    assert stat.S_IMODE((tmp_path / job_note.FILE).stat().st_mode) == 0o600
    (tmp_path / job_note.FILE).write_text('{"text": "half')
    assert job_note.read(folder) == JobNote()
    job_note.write(folder_in(tmp_path / "gone"), note)
    assert os.listdir(tmp_path) == [job_note.FILE]


@pytest.mark.parametrize(
    ("why", "told"),
    [
        ("job 17 was cancelled", "job 17 was cancelled"),
        ("the job of the ranks has ended with exit status 1", "SIGKILL: killed from outside"),
        ("its owner has stopped it", "SIGKILL: killed from outside"),
    ],
)
def test_a_job_ended_from_outside_explains_its_ranks_ends(why, told):
    answers = iter(["", "", why, why])
    death = 1, "SIGKILL: killed from outside"
    assert job_note.cause(death, lambda: next(answers), 5) == (1, told)


def test_without_news_the_rank_has_died_by_itself():
    assert job_note.cause((0, "exit status 3"), str, 0.2) == (0, "exit status 3")
