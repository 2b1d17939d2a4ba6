"""``benchmarks/scaling.py``: its tables from recorded measurements, and a small run of its own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden" / "scaling.json"
SMALL = ("--rounds", "1", "--steps", "2", "--minibatch-size", "16", "--predict", "8", "16")


@pytest.fixture
def script(repository: Path, tmp_path: Path) -> Path:
    """The benchmark in a folder of its own, so that its pictures go there."""
    shutil.copytree(repository / "benchmarks" / "measuring", tmp_path / "measuring")
    return Path(shutil.copy(repository / "benchmarks" / "scaling.py", tmp_path))


def test_tables_of_recorded_measurements(python, script: Path) -> None:
    told = python(script, "--load", GOLDEN, "--predict", "8", "32", timeout_s=110).stdout
    kept = json.loads(GOLDEN.read_text())
    first, rate = (1024 / found["steps"][0][3] for found in kept["rounds"])
    assert f"| strong, 2 ranks | 1,024 | {rate:,.0f} | {rate / 2 / first:.2f} |" in told
    assert "| 1 | 2 | 57,132 |" in told
    assert "| 32 | 2 | 1,261,128 |" in told
    measured, modelled = told.split("## 8 to 32 ranks, modelled")
    assert modelled.strip().startswith("Nothing below was measured.")
    assert "only 2 ranks could be fitted" in measured
    for way in ("float32, flat", "float32, hierarchical", "1 bit, flat", "16 bits, hierarchical"):
        assert f"\n| {way} |" in modelled
    for name in ("scaling", "scaling_messages", "scaling_parts"):
        assert (script.parent / "results" / f"{name}.png").is_file()


def test_a_faster_network_makes_more_samples(python, script: Path) -> None:
    def rate(*network: str) -> int:
        told = python(script, "--load", GOLDEN, "--predict", "32", *network, timeout_s=110).stdout
        row = next(line for line in told.splitlines() if line.startswith("| float32, flat |"))
        return int(row.split("|")[2].replace(",", ""))

    assert rate("--gbit-per-s", "100", "--latency-us", "2") > rate("--gbit-per-s", "0.1")


def test_ranks_must_be_comparable(python, script: Path) -> None:
    run = python(script, "--ranks", "2", "4", check=False)
    assert run.returncode == 2
    assert "--ranks must have 1, to compare with, and 2 or more" in run.stderr


@pytest.mark.mpi
@pytest.mark.timeout(330)
def test_a_small_run_on_real_ranks(python, script: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    told = python(script, "--ranks", "1", "2", *SMALL, "--save", kept, timeout_s=300).stdout
    assert "| strong, 2 ranks | 16 |" in told
    assert "| weak, 2 ranks | 32 |" in told
    alone, both = json.loads(kept.read_text())["rounds"]
    assert alone["reductions"] == []
    assert [timing[1] for timing in both["reductions"]][:2] == [1, 4]
    assert len(both["reductions"]) == 14
    for step in both["steps"]:
        _, _, _, seconds, compute_s, wait_s, transfer_s, sent = step
        assert compute_s + wait_s + transfer_s == pytest.approx(seconds, rel=1e-6)
        assert sent > 0
