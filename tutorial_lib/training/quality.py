"""How far a generator's samples are from real digits, in one number.

The Fréchet distance takes two sets of images, describes each image by features of a classifier,
and each set by mean and covariance of its features; then it compares these. It is 0 for equal sets,
and small for two sets of real digits: that is the line to measure against.

The features are those of the package's own small classifier, so a distance compares with others
from here only, and only for the same number of images: fewer make it larger.
"""

from __future__ import annotations

from functools import cache
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

from tutorial_lib.data.datasets import mnist
from tutorial_lib.models.digit_features import DigitFeatures
from tutorial_lib.training.digit_features import load_digit_features, scale_images

NUM_IMAGES = 10_000
BATCH_SIZE = 1000


@torch.no_grad()
def frechet_distance(
    images: npt.NDArray[np.float32] | torch.Tensor, real: npt.NDArray[np.float32] | torch.Tensor
) -> float:
    """Compare two sets of images.

    Args:
        images: (n, 28, 28), from -1 (background) to 1 (ink); 10,000 for figures to compare.
        real: Likewise; see ``real_images``.

    Returns:
        The distance, at least 0 up to rounding.

    Raises:
        ValueError: Another shape, or fewer than two images.

    **Distributed:** not collective; one rank may call it alone.

    **Source:** Heusel et al., 2017 (there with the features of an Inception network).
    """
    from torchmetrics.image.fid import FrechetInceptionDistance

    # Not synchronised: torchmetrics would otherwise wait for the other ranks.
    metric = FrechetInceptionDistance(feature=_network(), sync_on_compute=False)
    for is_real, given in ((False, images), (True, real)):
        stack = torch.as_tensor(given)
        if stack.ndim != 3 or stack.shape[1:] != (28, 28) or len(stack) < 2:
            raise ValueError(
                f"images of shape {tuple(stack.shape)}: expected (n, 28, 28), n at least 2"
            )
        for part in stack.split(BATCH_SIZE):
            metric.update(part, real=is_real)
    return float(metric.compute())


def real_images(
    part: Literal["first", "second"] = "first", data_dir: str | None = None
) -> torch.Tensor:
    """Return 10,000 of MNIST's training images, to compare with.

    Args:
        part: The first 10,000, or the second, of which none is among the first: their distance
            is the zero line.
        data_dir: Folder with MNIST; None takes the bundled files.

    Returns:
        (10000, 28, 28), from -1 to 1.

    Raises:
        DataError: The data folder doesn't hold MNIST; the message says what to do.
    """
    start = 0 if part == "first" else NUM_IMAGES
    return scale_images(mnist(data_dir).train.images[start : start + NUM_IMAGES])


@cache
def _network() -> DigitFeatures:
    return load_digit_features()
