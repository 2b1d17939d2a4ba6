"""torch's own optimizers in the place of a learner: they want means, the trainer has sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch


class OptimizerLearner:
    """Lets any torch optimizer learn from a gradient that is summed over a global minibatch.

    The sum is divided by the number of samples of all ranks, and that is the mean gradient
    exactly, also where ranks hold different numbers of samples. (A mean over the ranks of their
    means is not.)

    Args:
        optimizer: Of the network's parameters.
        max_gradient_norm: If all gradients as one vector are longer than this, they are scaled
            down to it; inf never scales.
        lr_factor: Factor on each parameter group's rate as it was given, by number of the update
            from 0; for warm-up.

    Raises:
        ValueError: A norm that is not positive.

    **Distributed:** not collective. Ranks that update from equal gradients and counts stay equal.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        max_gradient_norm: float = math.inf,
        lr_factor: Callable[[int], float] = lambda update: 1.0,
    ) -> None:
        if not max_gradient_norm > 0:
            raise ValueError(f"max_gradient_norm is positive, got {max_gradient_norm}")
        self.optimizer = optimizer
        self.max_gradient_norm = max_gradient_norm
        self.lr_factor = lr_factor
        self.num_updates = 0
        self.gradient_norm = math.nan  # of the last update, before clipping, where that is on
        self._rates = [float(group["lr"]) for group in optimizer.param_groups]

    @property
    def parameters(self) -> list[torch.Tensor]:
        """All parameters, group after group."""
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    @property
    def base_rate(self) -> float:
        """The first group's rate as it was given."""
        return self._rates[0]

    def learning_rate(self) -> float:
        """The first group's rate in the next update."""
        return self.base_rate * self.lr_factor(self.num_updates)

    @torch.no_grad()
    def update(self, num_samples: int, is_sweep_end: bool = False) -> bool:
        """Update the parameters from the gradients' sum over a minibatch.

        Args:
            num_samples: Samples in the global minibatch, 1 or more.
            is_sweep_end: Not used; learners take it.

        Returns:
            True.

        Raises:
            ValueError: An empty minibatch: skip the update.
        """
        if num_samples < 1:
            raise ValueError(f"cannot update from a minibatch of {num_samples} samples; skip it")
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        torch._foreach_div_(gradients, num_samples)
        if self.max_gradient_norm < math.inf:
            norm = torch.nn.utils.clip_grad_norm_(self.parameters, self.max_gradient_norm)
            self.gradient_norm = float(norm)
        factor = self.lr_factor(self.num_updates)
        for group, rate in zip(self.optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate * factor
        self.optimizer.step()
        self.num_updates += 1
        return True

    def state_dict(self) -> dict[str, Any]:
        """Return the optimizer's state and the number of updates."""
        return {"optimizer": self.optimizer.state_dict(), "num_updates": self.num_updates}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where ``state_dict`` was taken; the rates are those of this learner."""
        self.optimizer.load_state_dict(state["optimizer"])
        self.num_updates = state["num_updates"]


def torch_names(optimizer_args: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of an optimizer's keywords, with ``lr`` for TensorFlow's ``learning_rate``."""
    names = {"learning_rate": "lr"}
    return {names.get(name, name): value for name, value in optimizer_args.items()}
