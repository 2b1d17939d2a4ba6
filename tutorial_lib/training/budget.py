"""How long a training lasts."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Budget:
    """Steps and epochs after which a training is over, whichever comes first.

    Attributes:
        steps: Of each rank; may be inf.
        epochs: Times through the data; may be inf.
    """

    steps: float
    epochs: float

    @classmethod
    def of(cls, max_iteration: float, epochs: int | None, world_size: int) -> Budget:
        """Share out a budget of steps, as TensorLayer does.

        Args:
            max_iteration: Steps of all ranks together; each makes its share. inf for no limit.
            epochs: None for one, or for as many as ``max_iteration`` takes.
            world_size: Number of ranks.

        Raises:
            ValueError: Less than one step for each rank, or less than one epoch.

        **Source:** TensorLayer's ``max_iteration // size``, which for its default inf is nan.
        """
        if max_iteration < world_size or (epochs is not None and epochs < 1):
            raise ValueError(
                f"max_iteration is one step for each of the {world_size} ranks or more, and "
                f"epochs 1 or more, got {max_iteration} and {epochs}"
            )
        if math.isinf(max_iteration):
            return cls(math.inf, epochs or 1)
        return cls(max_iteration // world_size, math.inf if epochs is None else epochs)

    def is_spent(self, step: int, epoch: float) -> bool:
        """Whether nothing is left after so many steps and times through the data."""
        return step >= self.steps or epoch >= self.epochs

    def total_steps(self, steps_per_epoch: int) -> float:
        """Steps from the beginning to the end; inf if only a stop ends it."""
        return min(self.steps, self.epochs * steps_per_epoch)
