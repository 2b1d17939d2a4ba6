"""Several learners in one Trainer do, or refuse, what CNTK's did; see golden/misc_2workers.txt."""

import ast
import json
import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TRAINED = [
    "two_dp_aggregator",
    "bm_plus_dp",
    "single_is_aggregator",
    "distributed_after",
    "lr_zero",
]
REFUSED = ["two_dp_no_aggregator", "dist_plus_local", "different_distributed_after"]


@pytest.fixture(scope="module")
def ours(mpiexec):
    return json.loads(mpiexec(2, HERE / "trainers.py").stdout)


@pytest.fixture(scope="module")
def recorded():
    lines = (HERE / "golden" / "misc_2workers.txt").read_text().splitlines()
    return dict(re.fullmatch(r"CASE (\w+) (?:-> )?(.*)", line).groups() for line in lines if line)


def minibatches(text: str) -> list[tuple]:
    """The list of tuples in a recorded line, whatever stands around it."""
    return ast.literal_eval(text[text.index("[") : text.index("]") + 1])


@pytest.mark.mpi
@pytest.mark.parametrize("case", TRAINED)
def test_training_is_reported_as_cntk_did(ours, recorded, case):
    theirs = minibatches(recorded[case])
    assert theirs
    for mine, cntks in zip(ours[case], theirs, strict=False):
        updated, loss, samples, seen, *_ = cntks
        assert mine[0] is updated
        assert mine[1] == pytest.approx(loss, abs=1e-6)
        assert mine[2:] == [samples, seen]


@pytest.mark.mpi
@pytest.mark.parametrize("case", REFUSED)
def test_a_mix_is_refused_in_cntks_words(ours, recorded, case):
    kind, message = ours[case]
    assert recorded[case] == f"EXC {kind}: {message}"


@pytest.mark.mpi
def test_two_aggregators_are_refused_where_cntk_reported_twice_the_loss(ours):
    kind, message = ours["two_aggregators"]
    assert kind == "ValueError"
    assert "Only one" in message
