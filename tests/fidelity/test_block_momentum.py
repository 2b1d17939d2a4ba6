"""CNTK's recorded block momentum, its ranks played by threads."""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tutorial_lib.learners.block_momentum import block_momentum_distributed_learner
from tutorial_lib.learners.schedules import (
    learning_parameter_schedule_per_sample,
    momentum_schedule_per_sample,
)
from tutorial_lib.learners.sgd import momentum_sgd
from tutorial_lib.learners.simulation import run_ranks

GOLDEN = Path(__file__).parent / "golden"
CASES = sorted(
    (path.name.removesuffix("_r0.json").rpartition("_n")[::2])
    for path in GOLDEN.glob("bm_*_r0.json")
)


@pytest.mark.parametrize(("case", "n"), CASES)
def test_each_recorded_block_momentum_is_followed(case: str, n: str) -> None:
    world_size = int(n)
    runs = [
        json.loads((GOLDEN / f"{case}_n{n}_r{rank}.json").read_text()) for rank in range(world_size)
    ]

    def run(rank: int) -> list[tuple[Tensor, int, bool]]:
        parameter = torch.linspace(-1, 1, 6).requires_grad_()
        local = momentum_sgd(
            [parameter],
            learning_parameter_schedule_per_sample(0.01),
            momentum_schedule_per_sample(0.95),
        )
        learner = block_momentum_distributed_learner(local, **runs[rank]["kw"])
        steps = []
        for step in runs[rank]["steps"]:
            parameter.grad = torch.tensor(step["g"])
            is_updated = learner.update(step["cnt"])
            total = learner.total_number_of_samples_seen
            steps.append((parameter.detach().clone(), total, is_updated))
        return steps

    for mine, recorded in zip(run_ranks(world_size, run), runs, strict=True):
        for (parameter, total, is_updated), step in zip(mine, recorded["steps"], strict=True):
            assert (parameter - torch.tensor(step["p"])).abs().max() <= 5e-7
            assert (total, is_updated) == (step["tot"], step["ret"])
