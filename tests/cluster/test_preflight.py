"""The check before a training: what a rank looks at, and what real ranks find."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tutorial_lib.cluster import Ranks, preflight
from tutorial_lib.cluster.preflight import doors as host_doors
from tutorial_lib.cluster.preflight import facts as host_facts
from tutorial_lib.cluster.preflight.facts import checksums, look, try_to_write
from tutorial_lib.display.findings import Verdict
from tutorial_lib.launcher import cli


def test_checksums_follow_content_and_give_way_to_sizes(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a").write_bytes(b"one")
    (tmp_path / ".hidden").write_bytes(b"not data")
    before = checksums(tmp_path)
    assert list(before) == ["sub/a"]
    (tmp_path / "sub" / "a").write_bytes(b"two")
    assert checksums(tmp_path) != before
    assert checksums(tmp_path, hashed_bytes=2) == {"sub/a": "3 bytes"}
    with pytest.raises(FileNotFoundError):
        checksums(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="no file in this folder"):
        checksums(tmp_path / "empty")


def test_writing_is_tried_where_the_folder_will_be_and_leaves_nothing(tmp_path):
    problem, free_bytes = try_to_write(tmp_path / "not" / "yet")
    assert problem == ""
    assert free_bytes > 0
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    assert "file" in try_to_write(tmp_path / "file" / "x")[0]


def test_a_look_that_hangs_is_given_up(monkeypatch, tmp_path):
    monkeypatch.setattr(host_facts, "checksums", lambda folder: time.sleep(30))
    monkeypatch.setattr(host_facts, "_versions", lambda: {"torch": "2.13.0"})
    monkeypatch.setattr(host_facts, "_gpus", lambda: ((), ""))
    facts = look(str(tmp_path), str(tmp_path), limit_s=2)
    assert facts.data_problem == f"{tmp_path}: no answer within 2 s"
    assert facts.versions == {"torch": "2.13.0"}


def test_looks_that_hang_do_not_wait_for_each_other(monkeypatch, tmp_path):
    gate = threading.Event()
    for name in ("checksums", "try_to_write", "_versions", "_gpus"):
        monkeypatch.setattr(host_facts, name, lambda *a: gate.wait(60))
    began = time.monotonic()
    try:
        facts = look(str(tmp_path), str(tmp_path), limit_s=3)
    finally:
        gate.set()
    assert time.monotonic() - began < 6
    assert facts.data_problem == f"{tmp_path}: no answer within 3 s"
    assert facts.write_problem == f"{tmp_path}: no answer within 3 s"
    assert facts.problems == {
        "versions": "no answer within 3 s",
        "GPUs": "no answer within 3 s",
    }
    assert host_facts.LIMIT_S < preflight.STEP_S


def test_only_who_knows_the_token_is_let_in():
    door = host_doors.open_door(0, [0], "right")
    other = replace(door, rank=1, port=1)
    try:
        found = host_doors.knock(1, [replace(door, name="127.0.0.1", addresses=()), other], "right")
        assert [(k.at, k.problem) for k in found] == [("127.0.0.1", "")]
        assert abs(found[0].ahead_s) <= 0.05 + found[0].within_s
        wrong = host_doors.knock(1, [replace(door, name="127.0.0.1", addresses=()), other], "wrong")
        assert wrong[0].problem != ""
        stranger = replace(door, rank=3, name="127.0.0.1", addresses=())
        assert "leads to the host of rank 0" in (
            host_doors.knock(1, [stranger, other], "right")[0].problem
        )
    finally:
        host_doors.close_door()
    closed = host_doors.knock(1, [replace(door, name="127.0.0.1", addresses=()), other], "right")
    assert "refused" in closed[0].problem


SECOND_HOST = """
import socket
from tutorial_lib.cluster.preflight import doors as host_doors
from tutorial_lib.cluster.preflight import facts as host_facts

kept_names = socket.gethostname, socket.getfqdn
socket.getfqdn = lambda: "localhost"
if rank == 1:
    socket.gethostname = lambda: "node2"
"""
RESTORE = """
socket.gethostname, socket.getfqdn = kept_names
"""


@pytest.fixture
def two_hosts(ranks: Ranks) -> Iterator[Ranks]:
    """The two ranks, of which the second believes to be on a host of its own."""
    for number in (0, 1):
        ranks.push({"rank": number}, [number])
    ranks.run(SECOND_HOST)
    yield ranks
    ranks.run(RESTORE)


def by_subject(report) -> dict:
    return {finding.subject: finding for finding in report}


@pytest.mark.engines
def test_two_ranks_that_are_alike_are_ready(ranks: Ranks, tmp_path: Path) -> None:
    report = ranks.preflight(checkpoint_dir=str(tmp_path))
    assert report.is_ready, report
    subjects = ["Hosts", "Versions", "Ports", "Clocks", "Data", "Checkpoints", "GPUs"]
    assert [finding.subject for finding in report] == subjects
    assert repr(report).splitlines() == [str(finding) for finding in report]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.engines
def test_two_hosts_open_ports_for_each_other_and_compare_clocks(two_hosts: Ranks) -> None:
    found = by_subject(two_hosts.preflight())
    assert found["Hosts"].text.endswith("node2 (rank 1)")
    assert found["Ports"].verdict is Verdict.OK, found["Ports"]
    assert "open both ways between 2 hosts" in found["Ports"].text
    assert found["Clocks"].verdict is Verdict.OK
    assert found["Clocks"].text.startswith("at most")


CHANGES = """
import types
from dataclasses import replace

if rank == 1:
    kept = host_facts._own_files, host_facts._data, host_doors.time, host_doors.open_door
    host_facts._own_files = lambda: "ffffffffffff"
    host_facts._data = lambda folder: __import__("pathlib").Path("/nowhere")
    host_doors.time = types.SimpleNamespace(**{**vars(kept[2]), "time": lambda: kept[2].time() + 5})
    if is_shut:
        host_doors.open_door = lambda *a: (d := kept[3](*a)) and replace(d, port=1)
"""
CHANGE_BACK = """
if rank == 1:
    host_facts._own_files, host_facts._data, host_doors.time, host_doors.open_door = kept
"""


@pytest.mark.engines
@pytest.mark.parametrize("is_shut", [False, True])
def test_what_differs_on_a_real_rank_is_found(
    two_hosts: Ranks, tmp_path: Path, is_shut: bool
) -> None:
    (tmp_path / "file").touch()
    two_hosts.push({"is_shut": is_shut})
    two_hosts.run(CHANGES)
    try:
        report = two_hosts.preflight(checkpoint_dir=str(tmp_path / "file" / "x"))
    finally:
        two_hosts.run(CHANGE_BACK)
    found = by_subject(report)
    assert not report.is_ready
    assert "ffffffffffff on rank 1 (node2)" in found["Versions"].text
    assert "/nowhere: No such file or directory on rank 1 (node2)" in found["Data"].text
    assert found["Checkpoints"].verdict is Verdict.FIX
    if is_shut:
        assert found["Ports"].verdict is Verdict.FIX
        assert "can't reach node2" in found["Ports"].text
        assert "node2 can't reach" not in found["Ports"].text
    else:
        assert found["Ports"].verdict is Verdict.OK
        assert "node2 is 5.0 s ahead of" in found["Clocks"].text
    assert two_hosts.preflight().is_ready


@pytest.mark.engines
def test_a_rank_that_does_not_answer_is_named(ranks: Ranks, monkeypatch, wait_until) -> None:
    ranks.preflight()  # torch is imported
    monkeypatch.setattr(preflight, "STEP_S", 8.0)  # in which rank 0 answers
    hang = "from tutorial_lib.cluster.preflight import facts as host_facts; import time\n"
    hang += "kept, host_facts._versions = host_facts._versions, lambda: time.sleep(14)"
    ranks.run(hang, ranks=[1])
    (finding,) = ranks.preflight()
    assert "no answer from rank 1: it did not answer within 8 s" in finding.text
    assert wait_until(lambda: not ranks.problem(), 20)
    ranks.run("host_facts._versions = kept", ranks=[1])


@pytest.mark.mpi
def test_a_job_of_ones_own_asks_its_ranks(mpiexec, tmp_path) -> None:
    module = ("-m", "tutorial_lib.cluster.preflight", "--checkpoint-dir", tmp_path)
    done = mpiexec(2, *module)
    assert done.stdout.count("Hosts") == 1
    assert "2 ranks on 1 host" in done.stdout
    failed = mpiexec(2, *module, "--data-dir", tmp_path / "nowhere", check=False)
    assert failed.returncode != 0
    assert "nowhere" in failed.stdout


def test_alone_it_says_how_to_start_it(python) -> None:
    done = python("-m", "tutorial_lib.cluster.preflight", check=False)
    assert done.returncode == 1
    assert "start it by mpiexec or srun" in done.stderr


@pytest.mark.engines
def test_the_command_prints_the_report_and_fails_with_it(tmp_path) -> None:
    (tmp_path / "file").touch()
    arguments = ["cluster", "preflight", "--profile", "mpi", "--checkpoint-dir"]
    good = CliRunner().invoke(cli.app, [*arguments, str(tmp_path)])
    assert good.exit_code == 0, good.output
    assert "OK    Versions" in good.output
    bad = CliRunner().invoke(cli.app, [*arguments, str(tmp_path / "file" / "x")])
    assert bad.exit_code == 1
    assert "FIX   Checkpoints" in bad.output
