"""The high-level trainer on 1, 2 and 4 ranks: the same results, and the same after a kill."""

import json
import subprocess

import pytest
import torch

SCENARIOS = [
    "plain",
    "uneven",
    "a last minibatch of one",
    "fewer samples than ranks",
    "means of minibatches",
    "prefetch",
    "accumulation",
    "clipping",
    "compiled",
    "budget",
    "bf16",
    "averaged",
    "augmented",
    "stopped by rank 0",
    "asked by the last rank",
    "stopped early",
]
TOLERANCES = {"bf16": 5e-3}


@pytest.fixture(scope="module")
def results(mpiexec, repository, tmp_path_factory):
    """All scenarios on 1, 2 and 4 ranks; the program checks that ranks agree."""
    folder = tmp_path_factory.mktemp("scenarios")
    program = repository / "tests/training/programs/fit_scenarios.py"
    for n in (1, 2, 4):
        mpiexec(n, program, folder / f"{n}.json", timeout_s=150)
    return {n: json.loads((folder / f"{n}.json").read_text()) for n in (1, 2, 4)}


def figures(found) -> list[float]:
    if isinstance(found, dict):
        return [value for name in found for value in figures(found[name])]
    if isinstance(found, list):
        return [value for part in found for value in figures(part)]
    return [found]


@pytest.mark.mpi
@pytest.mark.timeout(480)
@pytest.mark.parametrize("name", SCENARIOS)
def test_ranks_change_nothing(results, name):
    assert set(results[1]) == set(SCENARIOS)
    one = figures(results[1][name])
    for n in (2, 4):
        apart = [abs(a - b) for a, b in zip(one, figures(results[n][name]), strict=True)]
        assert max(apart) <= TOLERANCES.get(name, 1e-9), f"{n} ranks"


@pytest.mark.mpi
@pytest.mark.timeout(480)
class TestScenarios:
    def test_accumulated_pieces_make_the_whole_minibatch(self, results):
        whole, pieces = results[1]["uneven"], results[1]["accumulation"]
        assert pieces["weights"] == pytest.approx(whole["weights"], abs=1e-9)

    def test_prefetching_and_compiling_change_nothing(self, results):
        assert results[1]["prefetch"] == results[1]["uneven"]
        assert results[1]["compiled"]["weights"] == pytest.approx(
            results[1]["plain"]["weights"], abs=1e-9
        )

    def test_a_mean_over_minibatches_weighs_each_sample_alike(self, results):
        means, per_sample = results[4]["means of minibatches"], results[4]["uneven"]
        assert means["weights"] == pytest.approx(per_sample["weights"], abs=1e-9)

    def test_a_budget_of_steps_is_shared_out(self, results):
        assert {found["budget"]["steps"] for found in results.values()} == {7}

    def test_one_ranks_clock_stops_all_at_one_step(self, results):
        assert {found["stopped by rank 0"]["steps"] for found in results.values()} == {5}

    def test_any_rank_may_ask_for_the_end(self, results):
        assert {found["asked by the last rank"]["steps"] for found in results.values()} == {6}

    def test_training_that_does_not_improve_is_ended_by_all(self, results):
        (steps,) = {found["stopped early"]["steps"] for found in results.values()}
        assert steps < 30 * 5

    def test_clipping_and_averages_do_something(self, results):
        assert results[1]["clipping"]["weights"] != results[1]["plain"]["weights"]
        assert results[1]["averaged"]["averaged"] != results[1]["averaged"]["validation"]


@pytest.mark.mpi
@pytest.mark.timeout(300)
def test_a_killed_training_goes_on_as_if_nothing_had_been(mpiexec, repository, tmp_path):
    program = repository / "tests/training/programs/fit_resume.py"

    def train(name: str, kill_at: int = 0) -> subprocess.CompletedProcess[str]:
        arguments = (program, tmp_path / name, tmp_path / f"{name}.out", str(kill_at))
        return mpiexec(2, *arguments, check=kill_at == 0)

    train("whole")
    assert train("killed", kill_at=11).returncode != 0
    assert not (tmp_path / "killed.out.0").exists()
    train("killed")
    for rank in range(2):
        whole, killed = (torch.load(tmp_path / f"{n}.out.{rank}") for n in ("whole", "killed"))
        assert whole.keys() == killed.keys()
        for name, value in whole.items():
            assert torch.equal(value, killed[name]), f"{name} on rank {rank}"
    whole, killed = (
        [line.split(",") for line in (tmp_path / n / "log.csv").read_text().splitlines()]
        for n in ("whole", "killed")
    )
    is_timeless = [i for i, name in enumerate(whole[0]) if name != "seconds"]
    assert [[row[i] for i in is_timeless] for row in whole] == [
        [row[i] for i in is_timeless] for row in killed
    ]
