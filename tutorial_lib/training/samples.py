"""Pictures out of a trained generator."""

import numpy as np
import numpy.typing as npt
import torch

from tutorial_lib.data.noise import NoiseSource
from tutorial_lib.models.gan import NOISE_SIZE, Generator

SAMPLE_SEED = 36  # a stream of its own: looking at samples doesn't change the training


@torch.no_grad()
def draw_samples(
    generator: Generator, count: int = 36, seed: int = SAMPLE_SEED
) -> npt.NDArray[np.float32]:
    """Let a generator draw.

    Args:
        generator: The plain module; a data-parallel wrapper would wait for the other ranks.
        count: Number of images.
        seed: Of their noise; equal seeds give equal noise.

    Returns:
        (count, 28, 28), pixels from -1 (background) to 1 (ink).

    **Distributed:** not collective; one rank may call it alone.
    """
    weight = next(generator.parameters())
    noise = NoiseSource(NOISE_SIZE, seed).next(count)
    images: torch.Tensor = generator(noise.to(weight.device, weight.dtype))
    return np.asarray(images.float().cpu()).reshape(count, 28, 28)
