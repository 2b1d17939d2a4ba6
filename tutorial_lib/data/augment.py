"""Pictures for training and for testing: whole minibatches as tensors, one pass over the pixels."""

from __future__ import annotations

import torch

CROP = 24
RANDOM_COLUMNS = 8  # numbers per picture that ``augment`` takes; it uses the first five
BRIGHTNESS = 63.0
CONTRAST = (0.2, 1.8)


def augment(images: torch.Tensor, random: torch.Tensor, crop: int = CROP) -> torch.Tensor:
    """Crop at a random place, flip half of them, change brightness and contrast, standardise.

    Nothing is drawn here: all chance comes in as ``random``, so that a picture's changes depend
    only on its place in the stream of samples and not on the number of ranks. See
    ``data.noise.NoiseSource``, whose rows fit.

    Args:
        images: uint8 (n, channels, height, width).
        random: float32 (n, 5 or more), uniform in [-1, 1): place of the crop, down and across;
            flip where negative; brightness, of ± 63; contrast, of 0.2 to 1.8.
        crop: Height and width of the result.

    Returns:
        float32 (n, channels, crop, crop), each picture of mean 0 and standard deviation 1.

    Raises:
        ValueError: Fewer rows of ``random`` than images, or images smaller than the crop.

    **Source:** TensorLayer's CIFAR-10 example: tf.random_crop, random_flip_left_right,
    random_brightness, random_contrast (about each channel's mean), per_image_standardization.
    """
    n, channels, height, width = images.shape
    if len(random) != n or random.shape[1] < 5:
        raise ValueError(f"{n} images take random numbers (n, 5 or more), got {random.shape}")
    if min(height, width) < crop:
        raise ValueError(f"images of {height} by {width} pixels have no crop of {crop}")
    top, left = _offset(random[:, 0], height - crop), _offset(random[:, 1], width - crop)
    rows = top[:, None] + torch.arange(crop)  # (n, crop)
    columns = left[:, None] + torch.arange(crop)
    columns = torch.where(random[:, 2, None] < 0, columns.flip(1), columns)
    pixels = rows[:, :, None] * width + columns[:, None, :]  # (n, crop, crop)
    index = pixels.flatten(1)[:, None].expand(n, channels, crop * crop)
    cropped = images.flatten(2).gather(2, index).float()  # (n, channels, crop * crop)
    contrast = CONTRAST[0] + (CONTRAST[1] - CONTRAST[0]) * (random[:, 4] + 1) / 2
    changed = _standardize(cropped, contrast, BRIGHTNESS * random[:, 3])
    return changed.view(n, channels, crop, crop)


def central_crop(images: torch.Tensor, crop: int = CROP) -> torch.Tensor:
    """The middle of each picture, standardised: what an augmented network is tested on.

    Args:
        images: uint8 (n, channels, height, width).
        crop: Height and width of the result.

    Returns:
        float32 (n, channels, crop, crop).
    """
    top, left = (images.shape[2] - crop) // 2, (images.shape[3] - crop) // 2
    return standardize(images[:, :, top : top + crop, left : left + crop])


def standardize(images: torch.Tensor) -> torch.Tensor:
    """Give each picture mean 0 and standard deviation 1.

    The deviation is the population's, and at least 1 / sqrt(number of values), so that a picture
    of one colour becomes 0 and not a division by 0.

    Args:
        images: (n, channels, height, width), any type.

    Returns:
        float32, same shape.

    **Source:** TensorFlow's ``per_image_standardization``.
    """
    values = images.flatten(2).to(torch.float32, copy=True)
    ones = torch.ones(len(images))
    return _standardize(values, ones, 0 * ones).view(images.shape)


def _offset(random: torch.Tensor, places: int) -> torch.Tensor:
    """A place from 0 to ``places``, inclusive, for each number in [-1, 1)."""
    return ((random.double() + 1) / 2 * (places + 1)).long()


def _standardize(
    values: torch.Tensor, contrast: torch.Tensor, brightness: torch.Tensor
) -> torch.Tensor:
    """Brightness, contrast and standardisation in one multiply-add, from each channel's moments.

    Contrast keeps a channel's mean and scales its variance; so the changed picture's moments
    follow from the unchanged one's, and the pixels need be touched only once.

    Args:
        values: float32 (n, channels, pixels); overwritten.
        contrast: (n,).
        brightness: (n,).
    """
    if not len(values):
        return values
    variance, mean = torch.var_mean(values, dim=2, correction=0)  # (n, channels)
    mean = mean + brightness[:, None]
    total = mean.mean(dim=1, keepdim=True)  # (n, 1)
    within = contrast.square() * variance.mean(dim=1)
    between = (mean - total).square().mean(dim=1)
    floor = values[0].numel() ** -0.5
    scale = 1 / (within + between).sqrt().clamp_min(floor)  # (n,)
    slope = (contrast * scale)[:, None]  # (n, 1)
    # x + b about its channel's mean m: ((x + b - m) c + m - total) * scale
    shift = (brightness[:, None] - mean) * slope + (mean - total) * scale[:, None]
    return values.mul_(slope[:, :, None]).add_(shift[:, :, None])
