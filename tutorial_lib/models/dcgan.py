"""The two convolutional networks of CNTK's DCGAN, and batch normalisation as CNTK has it."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from tutorial_lib.models.gan import IMAGE_SIZE, NOISE_SIZE
from tutorial_lib.models.linear import Linear

SIDE = 28  # of an image, in pixels
HIDDEN_SIZE = 1024
CHANNELS = 128  # of the generator's small pictures
STD_DEV = 0.02  # of initial weights
LEAK = 0.2  # what is left of negative values in the discriminator
TIME_CONSTANT = 5000  # samples
EPSILON = 1e-5


def scale_to_unit(
    pixels: torch.Tensor,
    dtype: torch.dtype = torch.float32,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Bring raw pixels to the range of a sigmoid: pixel / 255.

    Args:
        pixels: Any shape, uint8, 0 to 255.
        dtype: Floating-point type of the result.
        out: Memory to use for the result, of the same shape; its type counts, not ``dtype``.

    Returns:
        Same shape, 0 (background) to 1 (ink).

    **Source:** CNTK 206B, ``X_real_scaled``.
    """
    if out is None:
        out = torch.empty_like(pixels, dtype=dtype)
    return out.copy_(pixels).div_(255)


class BatchNorm(nn.Module):
    """Batch normalisation whose running statistics follow the number of samples.

    In training a feature is normalised by mean and variance of the minibatch at hand, over all
    places of a picture too. Running statistics, for drawing, take over n samples with the weight
    1 - exp(-n / time_constant), and the very first minibatch whole. So N ranks with n / N samples
    each remember more minibatches than one rank with n, but the same number of samples.

    Args:
        num_features: Channels of pictures, or width of vectors.
        time_constant: Samples after which the past still counts by 1 / e.
        epsilon: Added to the variance.

    **Distributed:** not collective: each rank normalises its own samples by their own statistics
    and keeps its own running ones, as CNTK's workers do.

    **Source:** CNTK's ``BatchNormalization(map_rank=1)`` with its default time constants, where
    the running variance is the unbiased one, as cuDNN has it; Ioffe and Szegedy,
    arXiv 1502.03167.
    """

    running_mean: torch.Tensor
    running_var: torch.Tensor
    samples_seen: torch.Tensor

    def __init__(
        self, num_features: int, time_constant: float = TIME_CONSTANT, epsilon: float = EPSILON
    ) -> None:
        super().__init__()
        self.time_constant, self.epsilon = time_constant, epsilon
        self.weight = nn.Parameter(torch.ones(num_features))
        self.bias = nn.Parameter(torch.zeros(num_features))
        self.register_buffer("running_mean", torch.zeros(num_features))
        self.register_buffer("running_var", torch.ones(num_features))
        self.register_buffer("samples_seen", torch.tensor(0))

    def forward(self, x: torch.Tensor, batches: int = 1) -> torch.Tensor:
        """Normalise.

        Args:
            x: (n, num_features) or (n, num_features, height, width).
            batches: Equal parts of ``x``, each of which is a minibatch of its own in training.

        Returns:
            The same shape.
        """
        if not self.training or batches == 1:
            return self._normalized(x)
        return torch.cat([self._normalized(part) for part in x.chunk(batches)])

    def weight_of(self, num_samples: int) -> float:
        """Weight of the next minibatch in the running statistics, 0 to 1."""
        is_first = int(self.samples_seen) == 0
        return 1.0 if is_first else -math.expm1(-num_samples / self.time_constant)

    def _normalized(self, x: torch.Tensor) -> torch.Tensor:
        factor = 0.0
        if self.training:
            factor = self.weight_of(len(x))
            self.samples_seen += len(x)
        return F.batch_norm(
            x,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training,
            factor,
            self.epsilon,
        )

    def extra_repr(self) -> str:
        """Describe the layer in its model's printout."""
        return f"{len(self.weight)}, time_constant={self.time_constant}, epsilon={self.epsilon}"


class Generator(nn.Module):
    """Noise to images: 100 -> 1024 -> 128 x 7 x 7 -> 128 x 14 x 14 -> 28 x 28.

    It has 6,947,713 parameters.

    Args:
        seed: Of the initial weights; equal seeds give equal networks, on any rank.

    **Source:** CNTK 206B, ``convolutional_generator``; Radford et al., arXiv 1511.06434.
    """

    pixel_range = (0.0, 1.0)

    def __init__(self, seed: int = 1) -> None:
        super().__init__()
        self.hidden = Linear(NOISE_SIZE, HIDDEN_SIZE)
        self.hidden_norm = BatchNorm(HIDDEN_SIZE)
        self.small = Linear(HIDDEN_SIZE, CHANNELS * 7 * 7)
        self.small_norm = BatchNorm(CHANNELS)
        # Height and width double as in CNTK's ``pad=True``: the way back of a convolution by steps
        # of 2 whose first window begins two pixels before the picture and whose last one ends one
        # pixel after it. (TensorFlow's "same" has one before and two after.)
        self.middle = nn.ConvTranspose2d(CHANNELS, CHANNELS, 5, 2, padding=2, output_padding=1)
        self.middle_norm = BatchNorm(CHANNELS)
        self.output = _ToOneChannel(CHANNELS, 1, 5, 2, padding=2, output_padding=1)
        _initialize(self, seed)

    def forward(self, noise: torch.Tensor) -> torch.Tensor:
        """Draw images.

        Args:
            noise: (n, 100), uniform in [-1, 1).

        Returns:
            (n, 784), pixels from 0 to 1.
        """
        hidden = F.relu_(self.hidden_norm(self.hidden(noise)))  # (n, 1024)
        small = self.small(hidden).view(-1, CHANNELS, 7, 7)
        small = small.contiguous(memory_format=torch.channels_last)  # twice as fast from here on
        small = F.relu_(self.small_norm(small))  # (n, 128, 7, 7)
        middle = F.relu_(self.middle_norm(self.middle(small)))  # (n, 128, 14, 14)
        logits = self.output(middle).flatten(1)  # (n, 784)
        # Under autocast the products are in fewer bits, which is too few for pixels.
        return torch.sigmoid(logits.to(self.output.weight.dtype))


class Discriminator(nn.Module):
    """Images to the probability that they are real: 28 x 28 -> 12 x 12 -> 64 x 4 x 4 -> 1024 -> 1.

    It has 1,054,493 parameters.

    Args:
        seed: Of the initial weights; equal seeds give equal networks, on any rank.

    **Source:** CNTK 206B, ``convolutional_discriminator``.
    """

    def __init__(self, seed: int = 2) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 1, 5, stride=2)
        self.first_norm = BatchNorm(1)
        self.second = nn.Conv2d(1, 64, 5, stride=2)
        self.second_norm = BatchNorm(64)
        self.hidden = Linear(64 * 4 * 4, HIDDEN_SIZE)
        self.hidden_norm = BatchNorm(HIDDEN_SIZE)
        self.output = Linear(HIDDEN_SIZE, 1)
        _initialize(self, seed)

    def forward(self, images: torch.Tensor, batches: int = 1) -> torch.Tensor:
        """Judge images.

        Args:
            images: (n, 784), pixels from 0 to 1.
            batches: Equal parts of ``images`` that batch normalisation shall keep apart. CNTK
                judges real and generated images in two evaluations of one network; with 2 one
                call does the same.

        Returns:
            (n, 1), probabilities.
        """
        pictures = images.view(-1, 1, SIDE, SIDE)
        first = F.leaky_relu_(self.first_norm(self.first(pictures), batches), LEAK)  # (n,1,12,12)
        second = self.second_norm(self.second(first), batches)
        features = F.leaky_relu_(second, LEAK).flatten(1)  # (n, 64, 4, 4) -> (n, 1024)
        hidden = self.hidden_norm(self.hidden(features), batches)
        logits = self.output(F.leaky_relu_(hidden, LEAK))  # (n, 1)
        return torch.sigmoid(logits.to(self.output.weight.dtype))


class _ToOneChannel(nn.ConvTranspose2d):
    """A transposed convolution to one channel, four times as fast on the CPU as torch's own.

    A matrix product makes of each place the 5 x 5 pixels that it adds to, and then they are added
    where they overlap.
    """

    def forward(self, input: torch.Tensor, output_size: list[int] | None = None) -> torch.Tensor:
        """(n, channels, height, width) to (n, 1, 2 * height, 2 * width)."""
        assert self.bias is not None
        n, channels, height, width = input.shape
        places = input.permute(0, 2, 3, 1).reshape(-1, channels)
        windows = (places @ self.weight.flatten(1)).view(n, height * width, -1).transpose(1, 2)
        size, stride = (2 * height, 2 * width), (2, 2)
        return F.fold(windows, size, (5, 5), padding=(2, 2), stride=stride) + self.bias


@torch.no_grad()
def _initialize(network: nn.Module, seed: int) -> None:
    """Normal weights from one stream per network, biases 0."""
    stream = torch.Generator().manual_seed(seed)
    for layer in network.children():
        if isinstance(layer, nn.Linear | nn.Conv2d | nn.ConvTranspose2d):
            layer.weight.normal_(0, STD_DEV, generator=stream)
            assert layer.bias is not None
            layer.bias.zero_()


assert SIDE * SIDE == IMAGE_SIZE
