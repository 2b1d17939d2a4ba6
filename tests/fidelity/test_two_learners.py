"""CNTK's recorded training with two learners in one trainer, on real ranks."""

import json
from pathlib import Path
from typing import Any

import pytest

# loss average by samples seen, two_dp_aggregator in misc_2workers.txt
RECORDED = {8: 1.8522768020629883, 16: 0.16363458335399628}


@pytest.mark.mpi
def test_learners_that_share_a_bucket_get_their_own_sums(mpiexec: Any) -> None:
    done = mpiexec(2, Path(__file__).parent / "two_learners.py")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted(seen for _, seen, _ in lines) == [8, 8, 16, 16]
    for loss, seen, sent in lines:
        assert abs(loss - RECORDED[seen]) <= 5e-7
        assert sent == [12 * seen // 8] * 2
