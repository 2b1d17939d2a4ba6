import time
from pathlib import Path

import pytest
import torch.distributed as dist

from tutorial_lib.distributed import session

PROGRAMS = Path(__file__).parent / "programs"
SUM_GRADIENTS = PROGRAMS / "sum_gradients.py"


def answers(stdout: str) -> list[str]:
    return sorted(line for line in stdout.splitlines() if line.startswith("ok"))


@pytest.mark.mpi
@pytest.mark.parametrize("n", [1, 2, 3])
def test_gradients_are_summed_under_mpi(mpiexec, n):
    done = mpiexec(n, SUM_GRADIENTS)
    assert answers(done.stdout) == [f"ok {rank} of {n} by mpi" for rank in range(n)]
    assert "Warning" not in done.stderr


@pytest.mark.mpi
def test_gloo_is_one_argument_away(mpiexec):
    assert len(answers(mpiexec(2, SUM_GRADIENTS, "gloo").stdout)) == 2


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("how", "code", "said"),
    [
        ("error", 1, "ValueError: no more paper"),
        ("out of ink", 1, "rank 1 of 2: out of ink"),
        ("3", 3, ""),
    ],
)
def test_a_failing_rank_ends_the_others(mpiexec, how, code, said):
    start_s = time.monotonic()
    done = mpiexec(2, PROGRAMS / "fail_on_rank_1.py", how, check=False, timeout_s=60)
    assert done.returncode == code
    assert said in done.stderr
    assert time.monotonic() - start_s < 30, "rank 0 waited for a rank that had failed"


def test_alone_there_is_no_group_and_nothing_to_wait_for():
    ranks = session.start()
    try:
        assert (ranks.rank, ranks.world_size, ranks.backend) == (0, 1, None)
        ranks.barrier()
    finally:
        session.stop()
    assert session.current() is None
    session.stop()


def test_a_group_of_somebody_else_is_not_taken_for_a_session():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with pytest.raises(RuntimeError, match=r"in place of torch\.distributed\.init"):
            session.start()
    finally:
        dist.destroy_process_group()


def test_nccl_without_gpus_says_what_to_do():
    with pytest.raises(ValueError, match="use backend 'gloo'"):
        session.start("nccl")
