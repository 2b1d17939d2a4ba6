"""What the two players of a GAN minimise, one loss per sample."""

from typing import Any

import torch

SMALLEST = 1e-37  # below this, CNTK takes no logarithm
LOG_OF_SMALLEST = -85.1


class _SafeLog(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        y = x.clamp_min(SMALLEST).log_().clamp_min_(LOG_OF_SMALLEST)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> torch.Tensor:
        (y,) = ctx.saved_tensors
        return grad_outputs[0] * torch.exp(-y)


def safe_log(x: torch.Tensor) -> torch.Tensor:
    """Logarithm that stays finite at 0: log(x), or -85.1 where x < 1e-37.

    A discriminator that is perfectly sure outputs exactly 0 or 1 in float32. There a plain
    ``torch.log`` gives -inf, and its infinite gradient times the sigmoid's 0 is NaN, which
    ruins every weight. Here the gradient is finite, and the product is 0.

    Args:
        x: Any shape, values >= 0.

    Returns:
        The logarithms, same shape; their gradient with respect to x is exp(-output).

    Source: CNTK's ``log``.
    """
    result: torch.Tensor = _SafeLog.apply(x)  # type: ignore[no-untyped-call]
    return result


def generator_loss(d_fake: torch.Tensor) -> torch.Tensor:
    """Loss of the generator per sample: 1 - log(D(G(z))).

    Args:
        d_fake: (n, 1) or (n,), the discriminator's probability that a generated image is real.

    Returns:
        (n,), at least 1; 1 where the discriminator is fooled completely.

    Source: CNTK 206A, ``G_loss``; the non-saturating loss of Goodfellow et al. (2014) plus 1.
    """
    return 1 - safe_log(d_fake.flatten())


def discriminator_loss(d_real: torch.Tensor, d_fake: torch.Tensor) -> torch.Tensor:
    """Loss of the discriminator per pair of samples: -(log D(x) + log(1 - D(G(z)))).

    Args:
        d_real: (n, 1) or (n,), its probability that a real image is real.
        d_fake: (n, 1) or (n,), its probability that a generated image is real.

    Returns:
        (n,), at least 0; 2 log 2 = 1.386 for a discriminator that always answers one half.

    Source: CNTK 206A, ``D_loss``; Goodfellow et al. (2014).
    """
    right = torch.stack([d_real.flatten(), 1 - d_fake.flatten()])  # (2, n), probabilities
    return -safe_log(right).sum(0)
