"""Initial weights: equal on every rank because they come from a seed, not from luck."""

import math

import numpy as np
import torch

from tutorial_lib.data.mersenne import MersenneTwister64


@torch.no_grad()
def xavier_uniform_(weight: torch.Tensor, stream: torch.Generator) -> torch.Tensor:
    """Fill a linear layer's weight from U(-b, b) with b = sqrt(3 / fan_in), in place.

    The values are drawn in float32 and then converted, so a float64 copy of a network starts
    from the same numbers.

    Args:
        weight: (out_features, in_features).
        stream: Random stream on the CPU; two layers that share it get different values.

    Returns:
        ``weight``.

    Source: CNTK's ``xavier()``, which counts only a layer's inputs; ``torch.nn.init``'s
    ``xavier_uniform_`` counts inputs and outputs (Glorot and Bengio, 2010).
    """
    bound = math.sqrt(3 / weight.shape[1])
    values = torch.empty(weight.shape, dtype=torch.float32).uniform_(
        -bound, bound, generator=stream
    )
    return weight.copy_(values)


@torch.no_grad()
def cntk_xavier_uniform_(weight: torch.Tensor, seed: int = 1) -> torch.Tensor:
    """Fill a linear layer's weight with the very numbers of CNTK 2.7, in place.

    CNTK starts its stream afresh for each tensor, so two layers hold the same numbers, only
    scaled; use ``xavier_uniform_`` for anything but repeating a CNTK run.

    Args:
        weight: (out_features, in_features); CNTK's is its transpose.
        seed: CNTK's fixed seed.

    Returns:
        ``weight``.

    Source: CNTK 2.7's ``xavier()``.
    """
    fan_out, fan_in = weight.shape
    bound = float(np.float32(math.sqrt(3 / fan_in)))
    drawn = MersenneTwister64(seed).draw(weight.numel()) / 2.0**64
    values = torch.from_numpy((drawn * (2 * bound) - bound).astype(np.float32))
    return weight.copy_(values.view(fan_in, fan_out).T)
