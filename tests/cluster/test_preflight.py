"""What the check before a training finds: each difference named, with ranks, hosts and a remedy."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tutorial_lib.cluster import Ranks, preflight
from tutorial_lib.cluster.preflight import Failure, findings
from tutorial_lib.cluster.preflight import doors as host_doors
from tutorial_lib.cluster.preflight import facts as host_facts
from tutorial_lib.cluster.preflight.doors import Door, Knock
from tutorial_lib.cluster.preflight.facts import Facts, checksums, look, try_to_write
from tutorial_lib.cluster.preflight.findings import spans
from tutorial_lib.display.findings import Verdict
from tutorial_lib.launcher import cli

VERSIONS = {"Python": "3.12.4", "torch": "2.13.0", "MPI": "MPICH 5.0.2"}
FILES = {"a.gz": "0" * 32, "b.gz": "1" * 32}


def world(ranks: int = 4, hosts: int = 2) -> list[Facts]:
    """Facts of ranks that are spread evenly, with nothing wrong."""
    return [
        Facts(
            rank, f"node{rank * hosts // ranks}", 0, dict(VERSIONS), dict(FILES), free_bytes=2**40
        )
        for rank in range(ranks)
    ]


def change(facts: list[Facts], rank: int, **what: object) -> list[Facts]:
    return [replace(fact, **what) if fact.rank == rank else fact for fact in facts]


DOORS = [Door(0, "node0", 5000, "node0.lan", ("10.0.0.1",), "32768-60999"),
         Door(2, "node1", 5001, "node1.lan", ("10.0.0.2",), "32768-60999")]  # fmt: skip
OPEN = [
    Knock("node0", "node1", "node1.lan", "", 0.0002, 0.0001),
    Knock("node0", "node1", "10.0.0.2", "", 0.0003, 0.0002),
    Knock("node1", "node0", "node0.lan", "", -0.0002, 0.0001),
    Knock("node1", "node0", "10.0.0.1", "", -0.0003, 0.0002),
]


def test_all_alike_is_ok():
    facts = world()
    for finding in (
        findings.hosts(facts),
        findings.versions(facts),
        findings.ports(DOORS, OPEN),
        findings.clocks(DOORS, OPEN),
        findings.data(facts, "/data"),
        findings.checkpoints(facts, "/out"),
        findings.gpus(facts),
    ):
        assert finding.verdict is Verdict.OK, finding
        assert "\n" not in str(finding)
    assert "node0 (ranks 0-1); node1 (ranks 2-3)" in findings.hosts(facts).text


def test_each_difference_of_versions_is_named_with_ranks_and_hosts():
    facts = change(world(), 3, versions={**VERSIONS, "torch": "2.12.0", "MPI": "Open MPI 5.0.2"})
    finding = findings.versions(facts)
    assert finding.verdict is Verdict.FIX
    assert "torch is 2.13.0 on ranks 0-2 (node0, node1), 2.12.0 on rank 3 (node1)" in finding.text
    assert "MPI is MPICH 5.0.2 on ranks 0-2 (node0, node1), Open MPI 5.0.2 on" in finding.text
    assert "Python" not in finding.text
    assert "install the same on all hosts" in finding.text


def test_a_package_that_is_missing_everywhere_is_no_agreement():
    facts = [replace(fact, versions={**VERSIONS, "mpi4py": "missing"}) for fact in world()]
    finding = findings.versions(facts)
    assert finding.verdict is Verdict.FIX
    assert "mpi4py: missing on all ranks" in finding.text


def test_a_look_that_took_too_long_is_no_agreement():
    late = change(world(), 2, versions={}, problems={"versions": "no answer within 60 s"})
    finding = findings.versions(late)
    assert finding.verdict is Verdict.FIX
    assert "no answer within 60 s on rank 2 (node1)" in finding.text


def test_one_shut_direction_is_enough_to_fail():
    shut = [replace(k, problem="timed out") if k.origin == "node1" else k for k in OPEN]
    finding = findings.ports(DOORS, shut)
    assert finding.verdict is Verdict.FIX
    assert "node1 can't reach node0 (node0.lan: timed out, 10.0.0.1: timed out)" in finding.text
    assert "node0 can't reach" not in finding.text
    assert "32768-60999" in finding.text


def test_a_host_that_did_not_try_counts_as_shut():
    finding = findings.ports(DOORS, OPEN[:2])
    assert finding.verdict is Verdict.FIX
    assert "node1 can't reach node0 (it did not try)" in finding.text


def test_a_name_that_leads_nowhere_is_told_apart_from_a_shut_port():
    nameless = [replace(OPEN[0], problem="Name or service not known"), *OPEN[1:]]
    finding = findings.ports(DOORS, nameless)
    assert finding.verdict is Verdict.NOTE
    assert "node0 reaches node1 at 10.0.0.2, not as node1.lan (Name or service" in finding.text


def test_clocks_are_judged_beyond_doubt_only():
    late = [replace(k, ahead_s=-3.0, within_s=0.1) for k in OPEN]
    finding = findings.clocks(DOORS, late)
    assert finding.verdict is Verdict.NOTE
    assert "node1 is 3.0 s behind node0" in finding.text
    vague = [replace(k, ahead_s=-3.0, within_s=2.5) for k in OPEN]
    assert findings.clocks(DOORS, vague).verdict is Verdict.OK
    assert "can't ask node1" in findings.clocks(DOORS, []).text


def test_data_that_differs_lacks_a_file_or_is_not_there():
    other = change(world(), 1, files={**FILES, "b.gz": "2" * 32})
    finding = findings.data(other, "/data")
    assert finding.verdict is Verdict.FIX
    assert f"b.gz is {'1' * 12} on ranks 0, 2-3 (node0, node1), {'2' * 12} on rank 1 (node0)" in (
        finding.text
    )
    assert "a.gz" not in finding.text
    fewer = change(world(), 2, files={"a.gz": FILES["a.gz"]})
    assert "missing on rank 2 (node1)" in findings.data(fewer, "/data").text
    unread = change(world(), 2, data_problem="/data: Stale file handle")
    finding = findings.data(unread, "/data")
    assert finding.verdict is Verdict.FIX
    assert "/data: Stale file handle on rank 2 (node1): copy the data" in finding.text


def test_only_rank_0_must_be_able_to_write():
    facts = change(world(), 0, write_problem="/out: Read-only file system")
    finding = findings.checkpoints(facts, "/out")
    assert finding.verdict is Verdict.FIX
    assert "rank 0 on node0 can't write to /out: Read-only file system" in finding.text
    full = change(world(), 0, free_bytes=2**20)
    assert findings.checkpoints(full, "/out").verdict is Verdict.NOTE


def test_gpus_are_told_with_their_ranks_and_differing_nccl_is_to_be_mended():
    facts = [
        replace(fact, local_rank=fact.rank % 2, gpus=("A", "B"), nccl="2.27.3") for fact in world()
    ]
    finding = findings.gpus(facts)
    assert finding.verdict is Verdict.OK
    assert "NCCL 2.27.3 (rank 0: cuda:0, rank 1: cuda:1, rank 2: cuda:0, rank 3: cuda:1)" in (
        finding.text
    )
    assert findings.gpus(change(facts, 3, nccl="2.21.5")).verdict is Verdict.FIX
    few = findings.gpus([replace(f, gpus=("A",), wish="gpu") for f in facts])
    assert few.verdict is Verdict.NOTE
    assert "NCCL takes one rank per GPU" in few.text
    mixed = findings.gpus(change(facts, 3, wish="cpu"))
    assert mixed.verdict is Verdict.FIX
    assert "'auto' on ranks 0, 1 (node0), rank 2 (node1); 'cpu' on rank 3 (node1)" in mixed.text


def test_a_rank_that_can_not_even_look_ends_the_report():
    def everyone(seconds, function, *arguments):
        return {0: world()[0], 1: Failure("ModuleNotFoundError: No module named 'x'")}

    (finding,) = preflight.examine(everyone)
    assert finding.verdict is Verdict.FIX
    assert "no answer from rank 1: ModuleNotFoundError: No module named 'x'" in finding.text


def examined(knocking: dict[int, object], closing: dict[int, object], hosts: int = 2) -> dict:
    """The report on four ranks that find nothing wrong but what knocking and closing give."""
    facts = world(hosts=hosts)
    leaders = {min(f.rank for f in facts if f.host == host) for host in {f.host for f in facts}}
    doors = [Door(n, facts[n].host, 5000, facts[n].host, ()) for n in sorted(leaders)]
    knocks = {a.rank: [Knock(a.host, b.host, b.host) for b in doors if b != a] for a in doors}

    def everyone(seconds, function, *arguments):
        values = {
            look: dict(enumerate(facts)),
            preflight._open_door: {door.rank: door for door in doors},
            preflight._knock: {**knocks, **knocking},
            preflight._close_door: closing,
        }[function]
        return {rank: values.get(rank) for rank in range(4)}

    return by_subject(preflight.examine(everyone, "/data", "/out"))


def test_a_rank_that_fails_while_it_knocks_or_closes_is_named():
    found = examined({2: Failure("it hung")}, {})
    assert found["Ranks"].verdict is Verdict.FIX
    assert "no answer from rank 2: it hung" in found["Ranks"].text
    assert "Ports" not in found  # no other host to be judged
    found = examined({}, {3: Failure("it did not answer within 30 s")})
    assert "no answer from rank 3: it did not answer within 30 s" in found["Ranks"].text
    assert found["Ports"].verdict is Verdict.OK
    both = examined({1: Failure("first")}, {0: Failure("other"), 1: Failure("second")})
    assert "rank 0: other; rank 1: first" in both["Ranks"].text


def test_ports_are_judged_between_hosts_that_knocked():
    found = examined({0: Failure("it hung")}, {}, hosts=4)
    assert "rank 0: it hung" in found["Ranks"].text
    assert found["Ports"].text == "open both ways between 3 hosts"


@pytest.mark.parametrize(
    ("numbers", "text"), [([3], "3"), ([0, 1, 2, 5], "0-2, 5"), ([5, 4, 1], "1, 4-5"), ([], "")]
)
def test_ranks_are_drawn_together(numbers, text):
    assert spans(numbers) == text


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
    monkeypatch.setattr(host_facts, "_versions", lambda: VERSIONS)
    monkeypatch.setattr(host_facts, "_gpus", lambda: ((), ""))
    facts = look(str(tmp_path), str(tmp_path), limit_s=2)
    assert facts.data_problem == f"{tmp_path}: no answer within 2 s"
    assert facts.versions == VERSIONS


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
def test_a_rank_that_does_not_answer_is_named(ranks: Ranks, monkeypatch) -> None:
    ranks.preflight()  # torch is imported
    monkeypatch.setattr(preflight, "STEP_S", 4.0)
    hang = "from tutorial_lib.cluster.preflight import facts as host_facts; import time\n"
    hang += "kept, host_facts._versions = host_facts._versions, lambda: time.sleep(8)"
    ranks.run(hang, ranks=[1])
    (finding,) = ranks.preflight()
    assert "no answer from rank 1: it did not answer within 4 s" in finding.text
    time.sleep(6)
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
