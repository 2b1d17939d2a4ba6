"""How what ranks found is judged: each difference named, with ranks, hosts and a remedy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tutorial_lib.cluster import preflight
from tutorial_lib.cluster.preflight import Failure, findings
from tutorial_lib.cluster.preflight.doors import Door, Knock
from tutorial_lib.cluster.preflight.facts import Facts, look
from tutorial_lib.cluster.preflight.findings import spans
from tutorial_lib.display.findings import Verdict

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

    return {found.subject: found for found in preflight.examine(everyone, "/data", "/out")}


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
