"""A small classifier of digits, whose hidden layer describes what an image looks like."""

from __future__ import annotations

import torch
from torch import nn

from tutorial_lib.models.classifiers import NUM_CLASSES

NUM_FEATURES = 48


class DigitFeatures(nn.Module):
    """Images to 48 features: two convolutions and a dense layer; 59,722 parameters.

    Args:
        seed: Of the weights.

    Attributes:
        num_features: What ``forward`` returns per image.
    """

    num_features = NUM_FEATURES

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.hidden = nn.Sequential(
                nn.Conv2d(1, 12, 3, padding=1),
                nn.ReLU(),
                nn.MaxPool2d(2),  # (n, 12, 14, 14)
                nn.Conv2d(12, 24, 3, padding=1),
                nn.ReLU(),
                nn.MaxPool2d(2),  # (n, 24, 7, 7)
                nn.Flatten(),
                nn.Linear(24 * 7 * 7, NUM_FEATURES),
                nn.ReLU(),
            )
            self.output = nn.Linear(NUM_FEATURES, NUM_CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Describe: (n, 28, 28), from -1 (background) to 1 (ink), to features (n, 48)."""
        features: torch.Tensor = self.hidden(images.unsqueeze(1))
        return features

    def classify(self, images: torch.Tensor) -> torch.Tensor:
        """Tell the digit: (n, 28, 28), as for ``forward``, to logits (n, 10)."""
        logits: torch.Tensor = self.output(self(images))
        return logits
