"""The two fully connected networks of CNTK's Basic GAN."""

import torch
from torch import nn

from tutorial_lib.models.init import xavier_uniform_
from tutorial_lib.models.linear import Linear

NOISE_SIZE = 100
HIDDEN_SIZE = 128
IMAGE_SIZE = 28 * 28


def scale_pixels(
    pixels: torch.Tensor,
    dtype: torch.dtype = torch.float32,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Bring raw pixels to the generator's range: 2 * (pixel / 255) - 1.

    Args:
        pixels: (n, 784) or any other shape, uint8, 0 to 255.
        dtype: Floating-point type of the result.
        out: Memory to use for the result, of the same shape; its type counts, not ``dtype``.

    Returns:
        Same shape, -1 (background) to 1 (ink).

    Source: CNTK 206A, ``X_real_scaled``.
    """
    if out is None:
        out = torch.empty_like(pixels, dtype=dtype)
    return out.copy_(pixels).div_(127.5).sub_(1)  # equal to the bit: halving 255 is exact


class Generator(nn.Module):
    """Noise to images: 100 -> 128 relu -> 784 tanh; 114,064 parameters.

    Args:
        seed: Of the initial weights; equal seeds give equal networks, on any rank.

    Source: CNTK 206A, ``generator``.
    """

    pixel_range = (-1.0, 1.0)

    def __init__(self, seed: int = 1) -> None:
        super().__init__()
        self.hidden = Linear(NOISE_SIZE, HIDDEN_SIZE, activation="relu")
        self.output = Linear(HIDDEN_SIZE, IMAGE_SIZE, activation="tanh")
        _initialise(self, seed)

    def forward(self, noise: torch.Tensor) -> torch.Tensor:
        """Draw images.

        Args:
            noise: (n, 100), uniform in [-1, 1).

        Returns:
            (n, 784), pixels from -1 to 1.
        """
        hidden = self.hidden(noise)  # (n, 128), relu
        images: torch.Tensor = self.output(hidden)  # (n, 784), tanh
        return images


class Discriminator(nn.Module):
    """Images to the probability that they are real: 784 -> 128 relu -> 1 sigmoid.

    It has 100,609 parameters.

    Args:
        seed: Of the initial weights; equal seeds give equal networks, on any rank.

    Source: CNTK 206A, ``discriminator``.
    """

    def __init__(self, seed: int = 2) -> None:
        super().__init__()
        self.hidden = Linear(IMAGE_SIZE, HIDDEN_SIZE, activation="relu")
        self.output = Linear(HIDDEN_SIZE, 1)
        _initialise(self, seed)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Judge images.

        Args:
            images: (n, 784), pixels from -1 to 1.

        Returns:
            (n, 1), probabilities.
        """
        hidden = self.hidden(images)  # (n, 128), relu
        logits = self.output(hidden)  # (n, 1)
        # Under autocast the products are in fewer bits, where 0.997 and 1 would be the same.
        return torch.sigmoid(logits.to(self.output.weight.dtype))


def _initialise(network: nn.Module, seed: int) -> None:
    """Xavier weights from one stream per network (CNTK restarts its stream for each tensor)."""
    stream = torch.Generator().manual_seed(seed)
    for layer in network.children():
        if isinstance(layer, nn.Linear):
            xavier_uniform_(layer.weight, stream)
            nn.init.zeros_(layer.bias)
