"""Initial weights: equal on every rank because they come from a seed, not from luck."""

import math

import torch


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
