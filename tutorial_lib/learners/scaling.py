"""The learning rate of a minibatch that is as many times larger as there are ranks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

Scaling = bool | float | Literal["linear", "sqrt", "off"]


def scaling_factor(scaling: Scaling, world_size: int) -> float:
    """Return the factor on the learning rate when each rank brings a minibatch of its own.

    - ``True`` or ``"linear"``: the number of ranks. Right for SGD, with or without momentum, while
      the minibatch stays small against what makes the gradient's noise vanish: k small steps then
      lead about as far as one step k times as long. It needs warm-up, since at first the
      gradient changes too fast for that.
    - ``"sqrt"``: its square root. For Adam and its relatives, which divide the step by the
      gradient's typical size, so that the noise of a step grows with the rate itself and shrinks
      with the root of the minibatch; also the careful choice for very large minibatches.
    - ``False`` or ``"off"``: 1. For a global minibatch that was already counted in the rate.
    - A number: that factor.

    Args:
        scaling: The rule.
        world_size: Number of ranks.

    Returns:
        The factor.

    Raises:
        ValueError: Another rule, or a factor that isn't positive; take one of these.

    **Source:** Goyal et al., arXiv 1706.02677 (linear); Krizhevsky, arXiv 1404.5997, and Malladi
    et al., arXiv 2205.10287 (square root). TensorLayer's ``scaling_learning_rate`` is linear.
    """
    match scaling:
        case True | "linear":
            return float(world_size)
        case "sqrt":
            return math.sqrt(world_size)
        case False | "off":
            return 1.0
        case int() | float() if scaling > 0:
            return float(scaling)
    raise ValueError(
        f"scaling is a factor, True, False, 'linear', 'sqrt' or 'off', not {scaling!r}"
    )


def warm_up(factor: float, num_steps: int) -> Callable[[int], float]:
    """Return the factor on the unscaled rate in each update: from 1 up to ``factor``, then that.

    Args:
        factor: What scaling asks for.
        num_steps: Updates until the factor is reached, in equal steps; 0 has it at once.

    Returns:
        A function of the update's number, from 0.

    **Source:** the gradual warm-up of Goyal et al., arXiv 1706.02677, section 2.2.
    """

    def at(update: int) -> float:
        if update >= num_steps:
            return factor
        return 1.0 + (factor - 1.0) * update / num_steps

    return at


def default_warm_up_steps(factor: float, steps_per_epoch: int, total_steps: float) -> int:
    """Return the updates of warm-up where none are given: 5 epochs, at most a tenth of all.

    Args:
        factor: Of scaling; nothing is warmed up without one.
        steps_per_epoch: Updates in an epoch.
        total_steps: Updates in all; may be inf.

    **Source:** Goyal et al. take 5 epochs of 90.
    """
    if factor == 1.0:
        return 0
    return int(min(5 * steps_per_epoch, total_steps // 10))
