import time
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"

pytestmark = pytest.mark.timeout(240)  # of a machine that has other things to do, too
LIMIT_S = 200


@pytest.mark.mpi
@pytest.mark.parametrize("program", ["collectives", "waits", "training"])
@pytest.mark.parametrize("n", [2, 4])
def test_all_checks_pass(mpiexec, program, n):
    done = mpiexec(n, PROGRAMS / f"{program}.py", timeout_s=LIMIT_S)
    assert done.stdout.rstrip().endswith("failed:"), done.stdout


@pytest.mark.mpi
def test_one_rank_is_enough(mpiexec):
    done = mpiexec(1, PROGRAMS / "collectives.py")
    assert done.stdout.rstrip().endswith("failed:"), done.stdout


@pytest.mark.mpi
@pytest.mark.parametrize(
    "how",
    [
        "in order",
        "without destroying",
        "with work under way",
        "destroyed with work under way",
        "in a subgroup only",
    ],
)
def test_a_program_may_end(mpiexec, how):
    done = mpiexec(3, PROGRAMS / "ends.py", how, timeout_s=60)
    assert sorted(done.stdout.split("\n")) == ["", "end 0", "end 1", "end 2"]
    assert not done.stderr


@pytest.mark.mpi
def test_an_error_on_one_rank_ends_the_others_wait_with_a_time_out(mpiexec):
    start_s = time.monotonic()
    done = mpiexec(3, PROGRAMS / "ends.py", "after an error on one rank", check=False)
    assert done.returncode != 0
    assert time.monotonic() - start_s < 40
    assert "ValueError: out of paper" in done.stderr
    assert "rank 0 waited 2 s in all_reduce #1 (float32 [3], 12 bytes)" in done.stderr


@pytest.mark.mpi
@pytest.mark.soak
@pytest.mark.timeout(700)
def test_tensors_may_be_larger_than_2_gib(mpiexec):
    assert mpiexec(2, PROGRAMS / "large.py", timeout_s=600).stdout.count("ok") == 2


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("n", "rounds"),
    [(2, 20), pytest.param(4, 200, marks=[pytest.mark.soak, pytest.mark.timeout(480)])],
)
def test_ranks_start_over_after_interrupts_at_any_moment(mpiexec, n, rounds):
    done = mpiexec(n, PROGRAMS / "interrupts.py", str(rounds), timeout_s=LIMIT_S + rounds)
    assert f"ok: {rounds} interrupts" in done.stdout


@pytest.mark.mpi
@pytest.mark.parametrize(("n", "backend"), [(2, "mpi4py"), (4, "mpi4py"), (2, "gloo")])
def test_ranks_start_over_after_faults(mpiexec, n, backend):
    done = mpiexec(n, PROGRAMS / "faults.py", backend, timeout_s=LIMIT_S)
    assert done.stdout.rstrip().endswith("failed:"), done.stdout
