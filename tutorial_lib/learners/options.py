"""What a learner can be told besides its rule, and what that does to gradients and parameters."""

from __future__ import annotations

import math
from typing import Any, TypedDict

import torch
from torch import Tensor

from tutorial_lib.learners.flat import Workspace
from tutorial_lib.learners.schedules import IGNORE, Schedule, ScheduleValue, as_schedule

Group = dict[str, Any]
SCHEDULED = ("momentum", "variance_momentum", "gaussian_noise_injection_std_dev")


class LearnerOptions(TypedDict, total=False):
    """Keywords that every learner takes, all of them CNTK's.

    Args:
        l1_regularization_weight: Per sample, ≥ 0.
        l2_regularization_weight: Per sample, ≥ 0.
        gaussian_noise_injection_std_dev: Standard deviation of noise added to the parameters after
            each update; a number or a schedule.
        gradient_clipping_threshold_per_sample: Largest gradient of one sample.
        gradient_clipping_with_truncation: True clamps each element; False scales a parameter's
            whole gradient down to the threshold, measured by its Frobenius norm.
        minibatch_size: ``None``: the gradient stays the sum over the minibatch; ``IGNORE``: it is
            divided by the number of samples first; k: the sum, and numbers are meant per k samples.
        epoch_size: Samples in an epoch, where ``lr`` or a momentum is a plain list.
        use_mean_gradient: Older name of ``minibatch_size=IGNORE``.
    """

    l1_regularization_weight: float
    l2_regularization_weight: float
    gaussian_noise_injection_std_dev: ScheduleValue | Schedule
    gradient_clipping_threshold_per_sample: float
    gradient_clipping_with_truncation: bool
    minibatch_size: int | None
    epoch_size: int | None
    use_mean_gradient: bool | None


NO_OPTIONS: LearnerOptions = {
    "l1_regularization_weight": 0.0,
    "l2_regularization_weight": 0.0,
    "gaussian_noise_injection_std_dev": 0.0,
    "gradient_clipping_threshold_per_sample": math.inf,
    "gradient_clipping_with_truncation": True,
    "minibatch_size": None,
    "epoch_size": None,
}


def scheduled_apart(values: Group) -> Group:
    """Return the values with those that follow schedules named so.

    Under its plain name, a torch scheduler that cycles momentum would set one in vain.
    """
    return {f"{name}_schedule" if name in SCHEDULED else name: v for name, v in values.items()}


def complete(group: Group) -> None:
    """Make schedules of a parameter group's values, and refuse options out of range.

    Raises:
        ValueError: An option out of range: correct it.
    """
    group["lr_schedule"] = group["lr"]
    for name, value in group.items():
        if name.endswith("_schedule"):
            group[name] = as_schedule(value, group["minibatch_size"], group["epoch_size"])
    group["smoothed_count"] = 0.0
    for name in ("l1_regularization_weight", "l2_regularization_weight"):
        if group[name] < 0:
            raise ValueError(f"{name} is {group[name]}; give 0 (off) or more")
    if group["gradient_clipping_threshold_per_sample"] < 0:
        raise ValueError("gradient_clipping_threshold_per_sample is negative; give inf for off")


def is_mean(group: Group) -> bool:
    """Whether the rule works on the mean gradient of a minibatch instead of the sum."""
    return bool(group["minibatch_size"] == IGNORE)


def prepare(group: Group, space: Workspace, num_samples: int) -> None:
    """Average, clip and regularise an update's gradients as asked; ``.grad`` stays as it is."""
    mean = is_mean(group)
    threshold = group["gradient_clipping_threshold_per_sample"]
    decay = group["l2_regularization_weight"]
    if mean:
        space.gathered().vector.mul_(1.0 / num_samples)
    if threshold != math.inf:
        threshold *= 1 if mean else num_samples
        gradients = space.gathered()
        if group["gradient_clipping_with_truncation"]:
            gradients.vector.clamp_(-threshold, threshold)
        else:
            norms = torch.stack(torch._foreach_norm(gradients.views))
            # 1 where the norm is within bounds, and multiplying by 1 is exact: no synchronisation.
            factors = (threshold / norms.double()).masked_fill_(norms <= threshold, 1)
            torch._foreach_mul_(gradients.views, factors.to(norms.dtype).unbind())
    if decay > 0:
        torch._foreach_copy_(space.scratch.views, space.parameters)
        space.scratch.vector.mul_(decay * (1 if mean else num_samples))
        space.gathered().vector.add_(space.scratch.vector)


def shrink(parameters: list[Tensor], threshold: float) -> None:
    """Move every element toward 0 by the threshold, and to 0 those nearer than that."""
    for parameter in parameters:
        parameter.copy_(torch.nn.functional.softshrink(parameter, threshold))
