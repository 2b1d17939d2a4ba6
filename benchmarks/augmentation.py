"""How fast CIFAR-10's pictures are augmented on one core.

Target: 20,000 a second.

python benchmarks/augmentation.py
"""

from __future__ import annotations

import time

import torch
from measuring import print_rates, side_by_side

from tutorial_lib.data.augment import CROP, augment, central_crop
from tutorial_lib.data.cifar import cifar10_sample
from tutorial_lib.data.noise import NoiseSource

BATCH_SIZE = 128
NUM_BATCHES = 32


def main() -> None:
    torch.set_num_threads(1)
    images = cifar10_sample().train.images
    batches = [
        images[torch.arange(first, first + BATCH_SIZE) % len(images)]
        for first in range(0, NUM_BATCHES * BATCH_SIZE, BATCH_SIZE)
    ]
    noise = NoiseSource(8)

    def in_one_pass() -> None:
        for batch in batches:
            augment(batch, noise.next(BATCH_SIZE))

    def by_operation() -> None:
        for batch in batches:
            one_after_the_other(batch, noise.next(BATCH_SIZE))

    def crop_only() -> None:
        for batch in batches:
            central_crop(batch)

    print(f"pictures of 32 by 32 in minibatches of {BATCH_SIZE}, per second of one core")
    alternatives = {
        "augment, one pass": in_one_pass,
        "one operation after the other": by_operation,
        "central crop, for validation": crop_only,
    }
    times = side_by_side(alternatives, clock=time.process_time)
    print_rates(times, NUM_BATCHES * BATCH_SIZE / 1e3, "k pictures")


def one_after_the_other(images: torch.Tensor, random: torch.Tensor) -> torch.Tensor:
    """TensorFlow's five operations on a minibatch, each a pass over the pixels."""
    top, left = ((random[:, column] + 1) / 2 * 9 for column in (0, 1))
    rows = top.long()[:, None] + torch.arange(CROP)
    columns = left.long()[:, None] + torch.arange(CROP)
    picture = torch.arange(len(images))[:, None, None]
    crops = images.permute(0, 2, 3, 1)[picture, rows[:, :, None], columns[:, None, :]]
    x = crops.permute(0, 3, 1, 2).float()
    x = torch.where(random[:, 2, None, None, None] < 0, x.flip(3), x)
    x = x + 63 * random[:, 3, None, None, None]
    mean = x.mean(dim=(2, 3), keepdim=True)
    x = (x - mean) * (1 + 0.8 * random[:, 4, None, None, None]) + mean
    deviation = x.std(dim=(1, 2, 3), correction=0, keepdim=True).clamp_min(x[0].numel() ** -0.5)
    return (x - x.mean(dim=(1, 2, 3), keepdim=True)) / deviation


if __name__ == "__main__":
    main()
