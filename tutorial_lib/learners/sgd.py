"""Gradient descent, plain, with momentum, and with Nesterov's look ahead."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Unpack

import torch
from torch import Tensor

from tutorial_lib.learners.flat import Flat, Workspace
from tutorial_lib.learners.learner import Learner
from tutorial_lib.learners.options import Group, LearnerOptions
from tutorial_lib.learners.schedules import Schedule, ScheduleValue

Parameters = Iterable[Tensor] | Iterable[dict[str, Any]]


class SGD(Learner):
    """Stochastic gradient descent: p -= rate * g."""

    def _apply(self, group: Group, space: Workspace, rate: float, num_samples: int) -> None:
        step = space.gathered()
        step.vector.mul_(rate)
        space.subtract(step)


class MomentumSGD(Learner):
    """Gradient descent with momentum.

    The rate is folded into the memory: m = M * m + rate * g, then p -= m. So a change of the rate
    acts on new gradients only, where torch's ``SGD`` applies it to the remembered ones too.
    """

    def reported_parameters(self) -> dict[str, float]:
        """Return what CNTK reports before an update: the rate and the momentum."""
        schedule = self.param_groups[0]["momentum_schedule"]
        reported = super().reported_parameters()
        if self.learning_rate() != 0:
            reported[schedule.label("Momentum")] = self._value(schedule)
        return reported

    def _apply(self, group: Group, space: Workspace, rate: float, num_samples: int) -> None:
        space.subtract(self._remember(group, space, rate, num_samples))

    def _remember(self, group: Group, space: Workspace, rate: float, num_samples: int) -> Flat:
        """Turn the gradient into a step, mix it into the memory and return the memory."""
        momentum = self._momentum(group, num_samples)
        step = space.gathered().vector.mul_(rate)
        if group["unit_gain"]:
            step.mul_(1 - space.rounded(momentum))
        memory = space.state("mom")
        memory.vector.mul_(momentum).add_(step)
        return memory


class Nesterov(MomentumSGD):
    """Gradient descent with momentum, from where the momentum will have led.

    The same memory as ``MomentumSGD``, then p -= M * m and p -= rate * g.
    """

    def reported_parameters(self) -> dict[str, float]:
        """Return what CNTK reports before an update: the rate alone."""
        return Learner.reported_parameters(self)

    def _apply(self, group: Group, space: Workspace, rate: float, num_samples: int) -> None:
        memory = self._remember(group, space, rate, num_samples)
        momentum = self._momentum(group, num_samples)
        torch.mul(memory.vector, momentum, out=space.scratch.vector)
        space.subtract(space.scratch)
        space.subtract(space.gathered())


def sgd(
    parameters: Parameters, lr: ScheduleValue | Schedule, **options: Unpack[LearnerOptions]
) -> SGD:
    """Make a learner by stochastic gradient descent.

    Args:
        parameters: Tensors or torch parameter groups.
        lr: Learning rate: a number, a list or a schedule.
        options: See ``LearnerOptions``.

    Returns:
        The learner.

    Raises:
        ValueError: No parameters, the same one twice, or an option out of range: correct it.

    **Source:** CNTK ``sgd``.
    """
    return SGD(parameters, lr, **options)


def momentum_sgd(
    parameters: Parameters,
    lr: ScheduleValue | Schedule,
    momentum: ScheduleValue | Schedule,
    unit_gain: bool = True,
    **options: Unpack[LearnerOptions],
) -> MomentumSGD:
    """Make a learner by gradient descent with momentum.

    Args:
        parameters: Tensors or torch parameter groups.
        lr: Learning rate: a number, a list or a schedule.
        momentum: Of the steps, the rate included.
        unit_gain: Whether the new gradient is weighted by 1 - momentum.
        options: See ``LearnerOptions``.

    Returns:
        The learner.

    Raises:
        ValueError: No parameters, the same one twice, or an option out of range: correct it.

    **Source:** CNTK ``momentum_sgd``.
    """
    return MomentumSGD(parameters, lr, {"momentum": momentum}, unit_gain, **options)


def nesterov(
    parameters: Parameters,
    lr: ScheduleValue | Schedule,
    momentum: ScheduleValue | Schedule,
    unit_gain: bool = True,
    **options: Unpack[LearnerOptions],
) -> Nesterov:
    """Make a learner by Nesterov's accelerated gradient.

    Args:
        parameters: Tensors or torch parameter groups.
        lr: Learning rate: a number, a list or a schedule.
        momentum: Of the steps, the rate included.
        unit_gain: Whether the new gradient is weighted by 1 - momentum.
        options: See ``LearnerOptions``.

    Returns:
        The learner.

    Raises:
        ValueError: No parameters, the same one twice, or an option out of range: correct it.

    **Source:** CNTK ``nesterov``.
    """
    return Nesterov(parameters, lr, {"momentum": momentum}, unit_gain, **options)
