"""Pictures out of a trained generator."""

from typing import cast

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from tutorial_lib.data.noise import NoiseSource
from tutorial_lib.models.gan import NOISE_SIZE
from tutorial_lib.training.evaluation import evaluation_mode

SAMPLE_SEED = 36  # a stream of its own: looking at samples doesn't change the training


@torch.no_grad()
def draw_samples(
    generator: nn.Module, count: int = 36, seed: int = SAMPLE_SEED
) -> npt.NDArray[np.float32]:
    """Let a generator draw, by its running statistics where it has batch normalisation.

    Args:
        generator: The plain module; a data-parallel wrapper would wait for the other ranks.
        count: Number of images.
        seed: Of their noise; equal seeds give equal noise.

    Returns:
        (count, 28, 28), pixels from -1 (background) to 1 (ink), whatever the generator's range.

    **Distributed:** not collective; one rank may call it alone.
    """
    weight = next(generator.parameters())
    noise = NoiseSource(NOISE_SIZE, seed).next(count)
    with evaluation_mode(generator):
        images: torch.Tensor = generator(noise.to(weight.device, weight.dtype))
    low, high = cast(tuple[float, float], generator.pixel_range)
    scaled = 2 * (images.float() - low) / (high - low) - 1
    return np.asarray(scaled.cpu()).reshape(count, 28, 28)
