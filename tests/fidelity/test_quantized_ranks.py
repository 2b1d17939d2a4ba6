"""CNTK's recorded quantised training on real ranks, through DDP's communication hook."""

import json
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent


@pytest.mark.mpi
@pytest.mark.parametrize(("bits", "n"), [(1, 2), (1, 3), (4, 2), (16, 3)])
def test_recorded_parameters_are_followed(mpiexec: Any, bits: int, n: int) -> None:
    done = mpiexec(n, HERE / "quantized_ranks.py", HERE / "golden", str(bits))
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(results) == n
    for result in results:
        assert result["worst"] <= (6e-4 if bits == 16 else 2e-5)
        assert result["same"]
        assert result["bytes"] > 0
