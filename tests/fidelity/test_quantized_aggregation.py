"""CNTK's recorded quantised gradients, its ranks played by threads."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tutorial_lib.learners.aggregation import QuantizedAggregation
from tutorial_lib.learners.simulation import run_ranks
from tutorial_lib.learners.transport import current_transport

GOLDEN = Path(__file__).parent / "golden"
CASES = [(1, 2), (1, 3), (2, 2), (4, 2), (4, 3), (8, 2), (16, 2), (16, 3)]


def recorded(bits: int, n: int) -> list[list[dict[str, Any]]]:
    files = [GOLDEN / f"quant_b{bits}_n{n}_r{rank}.json" for rank in range(n)]
    return [json.loads(file.read_text())["steps"] for file in files]


@pytest.mark.parametrize(("bits", "n"), CASES)
def test_each_recorded_aggregation_is_followed(bits: int, n: int) -> None:
    runs = recorded(bits, n)

    def run(rank: int) -> list[list[Tensor]]:
        # CNTK's matrix is (in, out), a torch layer's weight is (out, in).
        weight, bias = torch.tensor(runs[rank][0]["gp"]).t(), torch.tensor(runs[rank][0]["gb"])
        aggregation = QuantizedAggregation([weight, bias], bits, current_transport())
        sums = []
        for step in runs[rank]:
            gradients = [torch.tensor(step["gp"]).t().contiguous(), torch.tensor(step["gb"])]
            aggregation.aggregate(gradients)
            sums.append(gradients)
        return sums

    results = run_ranks(n, run)
    tolerance = 6e-4 if bits == 16 else 2e-5
    for rank in range(n):
        for step, (weight, bias) in zip(runs[rank], results[rank], strict=True):
            assert (weight.t() - torch.tensor(step["aggp"])).abs().max() <= tolerance
            assert (bias - torch.tensor(step["aggb"])).abs().max() <= tolerance
        for mine, first in zip(results[rank], results[0], strict=True):
            assert all(map(torch.equal, mine, first))
