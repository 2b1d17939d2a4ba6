import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

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


def test_gradients_are_summed_under_torchrun(tmp_path):
    torchrun = Path(sys.executable).parent / "torchrun"
    command = [torchrun, "--standalone", "--nproc-per-node", "2", SUM_GRADIENTS]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, env=environment)
    assert done.returncode == 0, done.stderr
    assert answers(done.stdout) == ["ok 0 of 2 by torchrun", "ok 1 of 2 by torchrun"]


def test_ranks_set_by_hand_find_each_other():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    ranks = [
        subprocess.Popen(
            [sys.executable, SUM_GRADIENTS],
            env={**os.environ, **common, "RANK": str(rank), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    output = "".join(rank.communicate(timeout=90)[0] for rank in ranks)
    assert answers(output) == ["ok 0 of 2 by environment", "ok 1 of 2 by environment"]


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


def test_nccl_without_gpus_says_what_to_do():
    with pytest.raises(ValueError, match="use backend 'gloo'"):
        session.start("nccl")
