"""Timelines: waiting told from communicating, on one clock, whatever the ranks' own clocks say."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from tutorial_lib.distributed.timeline import (
    COMMUNICATE,
    COMPUTE,
    WAIT,
    Record,
    StepTrace,
    Timeline,
    by_one_clock,
)
from tutorial_lib.distributed.trace import Waited

ALL = (0, 1, 2)


def simulate(seed: int, offsets: list[float]) -> tuple[dict[int, Record], dict[int, list[float]]]:
    """Ranks that compute for random times, then all-reduce for a hundredth of a second."""
    random_numbers = random.Random(seed)
    now = dict.fromkeys(ALL, 100.0)
    waits: dict[int, list[Waited]] = {rank: [] for rank in ALL}
    waited: dict[int, list[float]] = {rank: [] for rank in ALL}
    for sequence in range(5):
        for rank in ALL:
            now[rank] += random_numbers.uniform(0.01, 0.1)
        last = max(now.values())
        for rank in ALL:
            begun, end = now[rank] + offsets[rank], last + 0.01 + offsets[rank]
            waits[rank].append(Waited(ALL, sequence, "all_reduce", 8, begun, begun, end))
            waited[rank].append(last - now[rank])
            now[rank] = last + 0.01
    records = {
        rank: Record(100.0 + offsets[rank], now[rank] + offsets[rank], tuple(waits[rank]))
        for rank in ALL
    }
    return records, waited


@pytest.mark.parametrize("offsets", [[0.0, 0.0, 0.0], [0.0, -7.0, 1e4]])
def test_waits_are_found_whatever_the_clocks_say(offsets: list[float]) -> None:
    for seed in range(10):
        records, waited = simulate(seed, offsets)
        lanes = by_one_clock(records, offsets)
        for rank, lane in lanes.items():
            assert [span.start_s for span in lane[1:]] == [span.stop_s for span in lane[:-1]]
            assert lane[0].start_s == pytest.approx(0, abs=1e-9)
            found = [s.stop_s - s.start_s for s in lane if s.kind == WAIT]
            expected = [seconds for seconds in waited[rank] if seconds > 1e-9]
            assert [s for s in found if s > 1e-8] == pytest.approx(expected, abs=1e-8)
            moved = [s.stop_s - s.start_s for s in lane if s.kind == COMMUNICATE]
            assert moved == pytest.approx([0.01] * 5, abs=1e-8)
        shares = Timeline(lanes)
        for rank in ALL:
            total = sum(shares.share(kind)[rank] for kind in (COMPUTE, WAIT, COMMUNICATE))
            assert total == pytest.approx(1)


def test_overlap_with_computing_takes_no_time() -> None:
    record = Record(0.0, 1.0, (Waited((0,), 0, "all_reduce", 8, 0.2, 0.7, 0.8),))
    (lane,) = by_one_clock({0: record}, [0.0]).values()
    assert [(s.kind, s.start_s, s.stop_s) for s in lane] == [
        (COMPUTE, 0.0, 0.7),
        (COMMUNICATE, 0.7, 0.8),
        (COMPUTE, 0.8, 1.0),
    ]


def test_waits_of_two_threads_at_once_are_counted_once() -> None:
    waits = (
        Waited((0,), 0, "all_reduce", 8, 0.0, 0.1, 0.6),
        Waited((0,), 1, "all_reduce", 8, 0.0, 0.2, 0.5),
        Waited((0,), None, "recv", 8, 0.0, 0.3, 0.8),
    )
    (lane,) = by_one_clock({0: Record(0.0, 1.0, waits)}, [0.0]).values()
    assert sum(s.stop_s - s.start_s for s in lane) == pytest.approx(1)
    assert [s.operation for s in lane] == ["", "all_reduce", "recv", ""]


def test_chrome_trace_has_a_named_row_for_each_rank_and_microseconds(tmp_path: Path) -> None:
    lanes = by_one_clock(simulate(0, [0.0] * 3)[0], [0.0] * 3)
    path = Timeline(lanes).write_chrome_trace(tmp_path / "trace.json")
    events = json.loads(path.read_text())["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M"}
    assert names == {rank: f"rank {rank}" for rank in ALL}
    complete = [e for e in events if e["ph"] == "X"]
    assert len(complete) == sum(map(len, lanes.values()))
    assert {e["cat"] for e in complete} == {COMPUTE, WAIT, COMMUNICATE}
    assert max(e["ts"] + e["dur"] for e in complete) == pytest.approx(1e6 * lanes[0][-1].stop_s)


def test_lanes_are_drawn() -> None:
    drawn = Timeline(by_one_clock(simulate(0, [0.0] * 3)[0], [0.0] * 3)).picture()
    assert drawn.alt.count("Rank ") == 3
    assert drawn.png()


def test_without_our_backend_there_is_nothing_to_record() -> None:
    with pytest.raises(RuntimeError, match="mpiexec"):
        StepTrace()


@pytest.mark.mpi
def test_on_real_ranks_the_early_one_waits_for_the_late_one(mpiexec, repository: Path) -> None:
    program = repository / "tests" / "distributed" / "programs" / "timeline.py"
    result = mpiexec(2, program)
    assert result.stdout.splitlines() == ["rank 0 waited", "the clocks agree"]
