"""Adam as CNTK has it: momenta that follow the samples, sums instead of means."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor

from tutorial_lib.learners.flat import Workspace
from tutorial_lib.learners.fsadagrad import VARIANCE_MOMENTUM
from tutorial_lib.learners.learner import Learner
from tutorial_lib.learners.options import Group, LearnerOptions
from tutorial_lib.learners.schedules import Schedule, ScheduleValue


class Adam(Learner):
    """Adam: momentum of the gradient over the root of the momentum of its square.

    ``smoothed_count`` counts the updates, for the bias correction.
    """

    def _count_minibatch(self, group: Group, num_samples: int) -> None:
        group["smoothed_count"] += 1

    def _apply(self, group: Group, space: Workspace, rate: float, num_samples: int) -> None:
        momentum = self._momentum(group, num_samples)
        fade = self._momentum(group, num_samples, "variance_momentum")
        updates = group["smoothed_count"]
        correction = math.sqrt(1 - fade**updates) / (1 - momentum**updates)
        means, squares = space.state("mom").vector, space.state("ada").vector
        gradient, work = space.gathered().vector, space.scratch.vector
        torch.mul(gradient, 1 - space.rounded(fade), out=work).mul_(gradient)
        squares.mul_(fade).add_(work)
        if group["unit_gain"]:
            gradient.mul_(1 - space.rounded(momentum))
        means.mul_(momentum).add_(gradient)
        _take_root(squares, work).add_(group["epsilon"]).reciprocal_().mul_(correction)
        work.mul_(means).mul_(rate)
        space.subtract(space.scratch)


def _take_root(squares: Tensor, out: Tensor) -> Tensor:
    """Square roots rounded correctly, as C's are; torch's on the CPU are not, in the last bit."""
    if squares.device.type == "cpu" and squares.dtype in (torch.float32, torch.float64):
        np.sqrt(squares.numpy(), out=out.numpy())
        return out
    return torch.sqrt(squares, out=out)


def adam(
    parameters: Iterable[Tensor] | Iterable[dict[str, Any]],
    lr: ScheduleValue | Schedule,
    momentum: ScheduleValue | Schedule,
    unit_gain: bool = True,
    variance_momentum: ScheduleValue | Schedule = VARIANCE_MOMENTUM,
    epsilon: float = 1e-8,
    **options: Unpack[LearnerOptions],
) -> Adam:
    """Make an Adam learner.

    Args:
        parameters: Tensors or torch parameter groups.
        lr: Learning rate: a number, a list or a schedule.
        momentum: Of the gradient.
        unit_gain: Whether the new gradient is weighted by 1 - momentum.
        variance_momentum: Of the squared gradient.
        epsilon: Added to the root of the squares, ≥ 0.
        options: See ``LearnerOptions``.

    Returns:
        The learner.

    Raises:
        ValueError: No parameters, the same one twice, or an option out of range: correct it.

    **Source:** CNTK ``adam``.
    """
    if epsilon < 0:
        raise ValueError(f"epsilon is {epsilon}; give 0 or more")
    scheduled = {"momentum": momentum, "variance_momentum": variance_momentum}
    return Adam(parameters, lr, scheduled, unit_gain, {"epsilon": epsilon}, **options)
