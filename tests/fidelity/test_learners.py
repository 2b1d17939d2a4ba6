"""Every recorded case of CNTK's local learners, number for number."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tutorial_lib.learners import schedules
from tutorial_lib.learners.adam import adam
from tutorial_lib.learners.fsadagrad import fsadagrad
from tutorial_lib.learners.sgd import momentum_sgd, nesterov, sgd

RECORDED = json.loads((Path(__file__).parent / "golden" / "learners.json").read_text())
LEARNERS = {learner.__name__: learner for learner in (sgd, momentum_sgd, nesterov, adam, fsadagrad)}


def to_argument(value: Any) -> Any:
    if value == "IGNORE":
        return schedules.IGNORE
    if not isinstance(value, dict):
        return value
    if "per_sample" in value:
        return schedules.learning_parameter_schedule_per_sample(
            value["per_sample"], value.get("epoch_size")
        )
    if "time_constant" in value:
        return schedules.momentum_as_time_constant_schedule(value["time_constant"])
    return schedules.learning_parameter_schedule(
        value["value"], value.get("minibatch_size"), value.get("epoch_size")
    )


@pytest.mark.parametrize("name", RECORDED["cases"])
def test_each_recorded_learner_is_followed(name: str) -> None:
    case = RECORDED["cases"][name]
    parameter = torch.tensor(RECORDED["P0"], requires_grad=True)
    arguments = {key: to_argument(value) for key, value in case["kwargs"].items()}
    learner = LEARNERS[case["learner"]]([parameter], **arguments)
    for gradient, count, expected, rate in zip(
        RECORDED["G"], case["counts"], case["param"], case["lr_after"], strict=True
    ):
        parameter.grad = torch.tensor(gradient)
        assert learner.update(count)
        wanted = torch.tensor(expected)
        tolerance = 3e-8 + 2**-22 * wanted.abs()
        assert torch.all((parameter.detach() - wanted).abs() <= tolerance)
        assert learner.learning_rate() == rate
