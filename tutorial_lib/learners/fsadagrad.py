"""FSAdaGrad, the learner of CNTK's GAN example."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Unpack

import torch
from torch import Tensor

from tutorial_lib.learners.learner import Group, Learner, LearnerOptions, as_precise_as
from tutorial_lib.learners.schedules import (
    Schedule,
    ScheduleValue,
    momentum_schedule_per_sample,
)

VARIANCE_MOMENTUM = momentum_schedule_per_sample(0.9999986111120757)
"""CNTK's default: exp(-1/720000) per sample."""

LARGEST_SCALE = 10.0


class FSAdaGrad(Learner):
    """AdaGrad with fading memory, scaled by the number of samples it remembers, and momentum.

    A gradient is divided by the root mean square of the gradients so far, where ``smoothed_count``
    is the number of samples that the mean is over. That count grows from 0 as the memory fills, so
    the first updates need no bias correction; a cap of 10 on the factor keeps rare gradients tame.
    """

    def _apply(
        self,
        group: Group,
        parameters: list[Tensor],
        gradients: list[Tensor],
        rate: float,
        num_samples: int,
    ) -> None:
        momentum = self._momentum(group, num_samples)
        variance_momentum = self._momentum(group, num_samples, "variance_momentum")
        group["smoothed_count"] *= variance_momentum
        group["smoothed_count"] += (1 - variance_momentum) * num_samples
        if not parameters:
            return
        squares, means = self._states(parameters, "ada", "mom")
        fade = as_precise_as(variance_momentum, parameters)
        torch._foreach_mul_(squares, fade)
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - fade)
        scales = _scales(squares, group["smoothed_count"])
        if momentum > 0:
            torch._foreach_mul_(means, momentum)
            gain = 1 - as_precise_as(momentum, parameters) if group["unit_gain"] else 1
            torch._foreach_addcmul_(means, gradients, scales, gain)
        else:
            torch._foreach_mul_(scales, gradients)
            means = scales
        torch._foreach_add_(parameters, means, alpha=-rate)


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


def _scales(squares: list[Tensor], smoothed_count: float) -> list[Tensor]:
    """Return the factors of the gradients."""
    if smoothed_count == 0:  # A variance momentum of 1 remembers nothing to scale by.
        return [torch.ones_like(square) for square in squares]
    scales = list(torch._foreach_rsqrt(squares))
    torch._foreach_mul_(scales, math.sqrt(smoothed_count))
    # Where nothing but zeros was seen, this turns infinity into a finite factor of 0.
    torch._foreach_clamp_max_(scales, LARGEST_SCALE)
    return scales
