"""Train the classifier whose features judge samples, and write it into the package.

    python -m tutorial_lib.training.digit_features

Two epochs of MNIST's 60,000 training images on one thread; the same run gives the same weights.
``training/quality.py`` reads the file. Distances by another file's features are not comparable
with those in docs/quality.md, so run this only if the network changes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from tutorial_lib.data.datasets import Split, mnist
from tutorial_lib.models import digit_features
from tutorial_lib.models.classifiers import classification_losses, correct
from tutorial_lib.models.digit_features import DigitFeatures
from tutorial_lib.models.gan import scale_pixels
from tutorial_lib.training.checkpoint import read_checkpoint, write_checkpoint

FILE = Path(digit_features.__file__).with_suffix(".pt")
FORMAT = "gan-tutorial digit features 1"
BATCH_SIZE = 100
LEARNING_RATE = 1e-3


def train_digit_features(train: Split, epochs: int = 2, seed: int = 0) -> DigitFeatures:
    """Train from scratch, by Adam with a rate that falls to 0.

    Args:
        train: Images and labels.
        epochs: Times through them.
        seed: Of weights and order.

    Returns:
        The network, in evaluation mode.

    **Distributed:** not collective.
    """
    network = DigitFeatures(seed)
    order = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(network.parameters(), LEARNING_RATE)
    steps = epochs * (len(train) // BATCH_SIZE)
    falling = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)
    for _ in range(epochs):
        for rows in torch.randperm(len(train), generator=order).split(BATCH_SIZE):
            if len(rows) == BATCH_SIZE:
                optimizer.zero_grad()
                images = scale_images(train.images[rows])
                classification_losses(
                    network.classify(images), train.labels[rows]
                ).mean().backward()
                optimizer.step()
                falling.step()
    return network.eval()


def scale_images(images: torch.Tensor) -> torch.Tensor:
    """Scale bytes (n, 28, 28) or (n, 784) to what the network takes, (n, 28, 28) from -1 to 1."""
    return scale_pixels(images).reshape(-1, 28, 28)


@torch.no_grad()
def accuracy(network: DigitFeatures, split: Split) -> float:
    """Share of a data set that the network classifies rightly."""
    right = [
        correct(network.classify(scale_images(images)), labels).sum()
        for images, labels in zip(split.images.split(1000), split.labels.split(1000), strict=True)
    ]
    return float(torch.stack(right).sum()) / len(split)


def load_digit_features() -> DigitFeatures:
    """Return the network that the package brings, in evaluation mode.

    Raises:
        DataError: Its file is missing or damaged: install the package anew.
    """
    content = read_checkpoint(
        FILE, FORMAT, "the network that judges samples", "Install the package anew."
    )
    network = DigitFeatures()
    network.load_state_dict(content["weights"])
    return network.eval()


def main(arguments: list[str] | None = None) -> None:
    """Run the script; see ``--help``."""
    parser = argparse.ArgumentParser(prog="digit_features", description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=FILE)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    data = mnist()
    network = train_digit_features(data.train, options.epochs)
    tested = accuracy(network, data.test)
    content = {"format": FORMAT, "weights": network.state_dict(), "accuracy": tested}
    write_checkpoint(options.out, content)
    print(f"test accuracy {tested:.2%}; {options.out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
