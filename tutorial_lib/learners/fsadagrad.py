"""FSAdaGrad, the learner of CNTK's GAN example."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Unpack

import torch
from torch import Tensor

from tutorial_lib.learners.flat import Workspace
from tutorial_lib.learners.learner import Learner
from tutorial_lib.learners.options import Group, LearnerOptions
from tutorial_lib.learners.schedules import (
    Schedule,
    ScheduleValue,
    momentum_schedule_per_sample,
)

VARIANCE_MOMENTUM = momentum_schedule_per_sample(0.9999986111120757)
"""CNTK's default: exp(-1/720000) per sample."""

LARGEST_SCALE = 10.0
SMALL_STEP = 1 / 16
FEW_ELEMENTS = 4096  # up to which fused kernels gain nothing


class FSAdaGrad(Learner):
    """AdaGrad with fading memory, scaled by the number of samples it remembers, and momentum.

    A gradient is divided by the root mean square of the gradients so far, where ``smoothed_count``
    is the number of samples that the mean is over. That count grows from 0 as the memory fills, so
    the first updates need no bias correction; a cap of 10 on the factor keeps rare gradients tame.
    """

    def _count_minibatch(self, group: Group, num_samples: int) -> None:
        fade = self._momentum(group, num_samples, "variance_momentum")
        group["smoothed_count"] *= fade
        group["smoothed_count"] += (1 - fade) * num_samples

    def _apply(self, group: Group, space: Workspace, rate: float, num_samples: int) -> None:
        momentum = space.rounded(self._momentum(group, num_samples))  # 0, if too small for float32
        fade = space.rounded(self._momentum(group, num_samples, "variance_momentum"))
        gain = 1 - momentum if group["unit_gain"] else 1.0
        scale = math.sqrt(group["smoothed_count"])
        if 0 < momentum < 1 and fade < 1 and space.scratch.vector.numel() > FEW_ELEMENTS:
            # ada holds at least (1 - fade) * g * g, which bounds the scaled gradient.
            largest_step = rate * scale / math.sqrt(1 - fade) * gain / (1 - momentum)
            if abs(largest_step) < SMALL_STEP:
                _apply_fused(space, rate, momentum, fade, gain, scale)
                return
        gradient, work = space.gathered().vector, space.scratch.vector
        squares = space.state("ada").vector
        torch.mul(gradient, 1 - fade, out=work).mul_(gradient)
        squares.mul_(fade).add_(work)
        # What remembers nothing (a variance momentum of 1, squares too small for float32) is not
        # scaled.
        torch.rsqrt(squares, out=work).mul_(scale).clamp_max_(LARGEST_SCALE)
        gradient.mul_(work.masked_fill_(squares == 0, 1))
        if momentum > 0:
            gradient.mul_(gain)
            gradient = space.state("mom").vector.mul_(momentum).add_(gradient)
        torch.mul(gradient, rate, out=work)
        space.subtract(space.scratch)


def _apply_fused(
    space: Workspace, rate: float, momentum: float, fade: float, gain: float, scale: float
) -> None:
    """Apply the same rule with kernels that multiply and add at once.

    They round once instead of twice, less than 2e-9 apart in a small step, and take two thirds of
    the time.
    """
    squares, means, work = space.state("ada"), space.state("mom"), space.scratch
    squares.vector.mul_(fade)
    torch._foreach_addcmul_(squares.views, space.gradients, space.gradients, 1 - fade)
    torch.rsqrt(squares.vector, out=work.vector).mul_(scale).clamp_max_(LARGEST_SCALE)
    means.vector.mul_(momentum)
    torch._foreach_addcmul_(means.views, space.gradients, work.views, gain)
    torch._foreach_add_(space.parameters, means.views, alpha=-rate)


def fsadagrad(
    parameters: Iterable[Tensor] | Iterable[dict[str, Any]],
    lr: ScheduleValue | Schedule,
    momentum: ScheduleValue | Schedule,
    unit_gain: bool = True,
    variance_momentum: ScheduleValue | Schedule = VARIANCE_MOMENTUM,
    **options: Unpack[LearnerOptions],
) -> FSAdaGrad:
    """Make an FSAdaGrad learner.

    Args:
        parameters: Tensors or torch parameter groups.
        lr: Learning rate: a number, a list or a schedule.
        momentum: Of the scaled gradient.
        unit_gain: Whether the new gradient is weighted by 1 - momentum.
        variance_momentum: Of the squared gradient.
        options: See ``LearnerOptions``.

    Returns:
        The learner.

    Raises:
        ValueError: No parameters, the same one twice, or an option out of range: correct it.

    **Source:** CNTK ``fsadagrad``.
    """
    scheduled = {"momentum": momentum, "variance_momentum": variance_momentum}
    return FSAdaGrad(parameters, lr, scheduled, unit_gain, **options)
