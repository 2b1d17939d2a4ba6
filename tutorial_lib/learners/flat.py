"""A learner's gradients and state as vectors, so that a step of a rule is one kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

State = dict[Tensor, dict[str, Any]]


class Flat:
    """A vector of zeros, and views of its parts in the shapes of some tensors.

    Args:
        like: Tensors of one dtype and device.
    """

    def __init__(self, like: Sequence[Tensor]) -> None:
        sizes = [tensor.numel() for tensor in like]
        self.vector = like[0].new_zeros(sum(sizes))
        parts = self.vector.split(sizes)
        self.views = [part.view(tensor.shape) for part, tensor in zip(parts, like, strict=True)]


class Workspace:
    """What a learner works with for parameters of one dtype and device, as vectors.

    The state lives where torch has it, in the optimizer's ``state[parameter][name]``; these are
    views of the vectors here. A state that somebody replaced (``load_state_dict`` does) is noticed
    at its next use and taken over. Parameters and gradients stay wherever they are.

    Args:
        parameters: Of one dtype and device.
        state: The optimizer's.
    """

    def __init__(self, parameters: list[Tensor], state: State) -> None:
        self.parameters = parameters
        self.scratch = Flat(parameters)
        self.gradients: list[Tensor] = []
        self._gathered: Flat | None = None
        self._state = state
        self._states: dict[str, Flat] = {}

    def holds(self, parameters: list[Tensor], state: State) -> bool:
        """Whether this is the workspace of just these parameters and states."""
        return (
            state is self._state
            and len(parameters) == len(self.parameters)
            and all(map(_is_same, parameters, self.parameters))
        )

    def read_gradients(self) -> None:
        """Take the parameters' gradients as this update's, where they lie."""
        self.gradients = cast(list[Tensor], [parameter.grad for parameter in self.parameters])

    def gathered(self) -> Flat:
        """Return this update's gradients as a copy that may be changed, from now on theirs."""
        if self._gathered is None:
            self._gathered = Flat(self.parameters)
        if self.gradients is not self._gathered.views:
            torch._foreach_copy_(self._gathered.views, self.gradients)
            self.gradients = self._gathered.views
        return self._gathered

    def state(self, name: str) -> Flat:
        """Return the named state of the parameters, zeros at first."""
        flat = self._states.get(name)
        if flat is None:
            flat = self._states[name] = Flat(self.parameters)
        for parameter, view in zip(self.parameters, flat.views, strict=True):
            states = self._state[parameter]
            if states.get(name) is not view:
                if name in states:
                    view.copy_(states[name])
                else:
                    view.zero_()
                states[name] = view
        return flat

    def subtract(self, flat: Flat) -> None:
        """Subtract the vector from the parameters."""
        torch._foreach_sub_(self.parameters, flat.views)

    def rounded(self, value: float) -> float:
        """Return the value as precise as the parameters are.

        CNTK rounds its scalars so. It matters where 1 - value is formed afterwards and the value
        is close to 1.
        """
        if self.scratch.vector.dtype == torch.float64:
            return value
        return float(np.float32(value))


def _is_same(a: Tensor, b: Tensor) -> bool:
    return a is b
