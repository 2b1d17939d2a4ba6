"""The networks of TensorLayer's two examples, and a softmax classifier: images to 10 logits."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import nn

from tutorial_lib.models.linear import Linear

Initialization = Literal["tensorlayer", "pytorch"]
CONVOLUTION_STD_DEV, DENSE_STD_DEV, GAMMA_STD_DEV = 0.02, 0.1, 0.002
NUM_CLASSES = 10


class MnistMlp(nn.Module):
    """Digits to logits: two hidden layers of 800, dropout before each layer; 1,276,810 parameters.

    Args:
        initialization: "tensorlayer" draws weights from a normal distribution cut off at two
            standard deviations of 0.1, biases 0; "pytorch" takes ``nn.Linear``'s own rule, which
            learns faster in the first epochs.
        seed: Of the weights; equal on all ranks.
        dropout: Shares of the inputs and of each hidden layer's outputs that a training step
            leaves out.

    **Source:** TensorLayer 1.11, ``tutorial_mnist_distributed_trainer.py``.
    """

    def __init__(
        self,
        initialization: Initialization = "tensorlayer",
        seed: int = 0,
        dropout: tuple[float, float, float] = (0.2, 0.5, 0.5),
    ) -> None:
        super().__init__()
        first, second, third = dropout
        with torch.random.fork_rng(devices=[]):  # weights are drawn on the CPU
            torch.manual_seed(seed)
            self.layers = nn.Sequential(
                nn.Flatten(),
                nn.Dropout(first),
                Linear(784, 800, activation="relu"),
                nn.Dropout(second),
                Linear(800, 800, activation="relu"),
                nn.Dropout(third),
                Linear(800, NUM_CLASSES),
            )
            _initialize(self, initialization)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Classify: (n, 784) or (n, 28, 28) of pixels / 256 to logits (n, 10)."""
        logits: torch.Tensor = self.layers(images)
        return logits


class CifarCnn(nn.Module):
    """Small pictures to logits: two convolutions, three dense layers; 1,068,426 parameters.

    Convolution 5x5 to 64 channels, batch normalisation, relu, max pooling 3x3 by 2, all twice;
    then 2304, 384, 192, 10.

    Args:
        initialization: "tensorlayer" draws weights from normal distributions cut off at two
            standard deviations, 0.02 of convolutions and 0.1 of dense layers, and batch
            normalisation's scales from N(1, 0.002); "pytorch" takes torch's own rules.
        seed: Of the weights; equal on all ranks.

    **Source:** TensorLayer 1.11, ``tutorial_cifar10_distributed_trainer.py``.
    """

    def __init__(self, initialization: Initialization = "tensorlayer", seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):  # weights are drawn on the CPU
            torch.manual_seed(seed)
            self.convolutions = nn.Sequential(*_convolution(3, 64), *_convolution(64, 64))
            self.hidden = nn.Sequential(
                Linear(2304, 384, activation="relu"), Linear(384, 192, activation="relu")
            )
            self.output = Linear(192, NUM_CLASSES)
            _initialize(self, initialization)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Classify: standardised (n, 3, 24, 24) to logits (n, 10)."""
        features = self.convolutions(images.contiguous(memory_format=torch.channels_last))
        logits: torch.Tensor = self.output(self.hidden(features.flatten(1)))
        return logits

    def weight_penalty(self) -> torch.Tensor:
        """Half the sum of the squared weights of the two hidden dense layers, a scalar.

        Without 0.004 times this in the loss, says TensorLayer's example, accuracy falls by 15 %.
        """
        weights = [w for name, w in self.hidden.named_parameters() if name.endswith("weight")]
        return torch.stack([weight.square().sum() for weight in weights]).sum() / 2


class SoftmaxClassifier(nn.Module):
    """One linear layer from features to logits: what cross-entropy turns into softmax regression.

    Args:
        num_features: Width of the input.

    **Source:** the logistic regression of CNTK's tutorial 103B; starts from 0, as it is convex.
    """

    def __init__(self, num_features: int = 784) -> None:
        super().__init__()
        self.linear = nn.Linear(num_features, NUM_CLASSES)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Classify: (n, num_features) to logits (n, 10)."""
        logits: torch.Tensor = self.linear(features.flatten(1))
        return logits


def correct(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Whether the largest logit is the label's, per sample: 1.0 or 0.0.

    Args:
        logits: (n, classes).
        labels: (n,), places of classes.

    Returns:
        float32 (n,); its mean is the accuracy.
    """
    return (logits.argmax(dim=1) == labels).float()


def classification_losses(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross-entropy per sample, (n,), in float32 where the logits have fewer bits."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return F.cross_entropy(logits, labels, reduction="none")


def count_parameters(model: nn.Module) -> int:
    """Number of values that training changes."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def _convolution(channels_in: int, channels_out: int) -> list[nn.Module]:
    return [
        nn.Conv2d(channels_in, channels_out, 5, padding=2, bias=False),
        nn.BatchNorm2d(channels_out, momentum=0.01),  # a decay of 0.99
        nn.ReLU(),
        # On even sizes TensorFlow's SAME pads right and below, which is what ceil_mode does.
        nn.MaxPool2d(3, 2, ceil_mode=True),
    ]


@torch.no_grad()
def _initialize(model: nn.Module, initialization: Initialization) -> None:
    if initialization not in ("tensorlayer", "pytorch"):
        raise ValueError(f"initialization is 'tensorlayer' or 'pytorch', got {initialization!r}")
    for layer in model.modules() if initialization == "tensorlayer" else ():
        if isinstance(layer, nn.Conv2d):
            _truncated_normal_(layer.weight, CONVOLUTION_STD_DEV)
        elif isinstance(layer, nn.Linear):
            _truncated_normal_(layer.weight, DENSE_STD_DEV)
            layer.bias.zero_()
        elif isinstance(layer, nn.BatchNorm2d):
            layer.weight.normal_(1.0, GAMMA_STD_DEV)


def _truncated_normal_(weight: torch.Tensor, std_dev: float) -> None:
    nn.init.trunc_normal_(weight, 0.0, std_dev, -2 * std_dev, 2 * std_dev)
