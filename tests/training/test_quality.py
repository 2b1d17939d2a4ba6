"""The distance of samples from real digits: zero lines, order, and the network it judges by."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tutorial_lib.data.datasets import Split, mnist
from tutorial_lib.models.digit_features import NUM_FEATURES, DigitFeatures
from tutorial_lib.models.gan import Generator
from tutorial_lib.training.digit_features import (
    FILE,
    accuracy,
    load_digit_features,
    train_digit_features,
)
from tutorial_lib.training.quality import NUM_IMAGES, frechet_distance, real_images
from tutorial_lib.training.samples import draw_samples


@pytest.fixture(scope="module")
def real() -> torch.Tensor:
    return real_images()[:1000]


def test_distance_is_zero_of_equal_sets_and_symmetric(real: torch.Tensor) -> None:
    other = real_images("second")[:500]
    assert frechet_distance(real, real.flip(0)) == pytest.approx(0, abs=1e-3)
    there, back = frechet_distance(real, other), frechet_distance(other, real)
    assert there == pytest.approx(back, rel=1e-3)
    assert there > 0.01


def test_distance_agrees_with_its_definition_for_gaussians() -> None:
    """With one image moved in feature space by hand: only the means differ."""
    images = real_images()[:300]
    with torch.no_grad():
        features = load_digit_features()(images).double()
    a, b = features[:150], features[150:]
    mean = (a.mean(0) - b.mean(0)).square().sum()
    cov_a, cov_b = torch.cov(a.T), torch.cov(b.T)
    values, vectors = torch.linalg.eigh(cov_a)
    root = vectors @ torch.diag(values.clamp(min=0).sqrt()) @ vectors.T
    mixed = torch.linalg.eigvalsh(root @ cov_b @ root).clamp(min=0).sqrt().sum()
    expected = mean + cov_a.trace() + cov_b.trace() - 2 * mixed
    assert frechet_distance(images[:150], images[150:]) == pytest.approx(float(expected), rel=1e-3)


def test_worse_images_are_farther(real: torch.Tensor) -> None:
    noise = torch.Generator().manual_seed(0)
    blurred = [real + level * torch.randn(real.shape, generator=noise) for level in (0.2, 0.5)]
    sets = [real_images("second")[:1000], *blurred, draw_samples(Generator(), 1000)]
    distances = [frechet_distance(images, real) for images in sets]
    assert distances == sorted(distances)
    assert distances[0] < distances[-1] / 20


def test_real_images_are_distinct_parts_of_the_training_set() -> None:
    first, second = real_images(), real_images("second")
    assert first.shape == second.shape == (NUM_IMAGES, 28, 28)
    assert float(first.min()) == -1
    assert float(first.max()) == 1
    assert not torch.equal(first, second)


@pytest.mark.parametrize("shape", [(5, 784), (1, 28, 28), (5, 27, 28)])
def test_other_shapes_are_refused(shape: tuple[int, ...], real: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="expected"):
        frechet_distance(np.zeros(shape, np.float32), real)


def test_shipped_network_is_small_and_knows_the_digits() -> None:
    network, test = load_digit_features(), mnist().test
    assert FILE.stat().st_size <= 300_000
    assert accuracy(network, Split(test.images[:2000], test.labels[:2000])) > 0.95
    assert network(torch.zeros(3, 28, 28)).shape == (3, NUM_FEATURES)


def test_training_it_twice_gives_the_same_and_something_learned() -> None:
    train = mnist().train
    few = Split(train.images[:1000], train.labels[:1000])
    weights = [train_digit_features(few, epochs=2).state_dict() for _ in range(2)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    learned = DigitFeatures()
    learned.load_state_dict(weights[0])
    assert accuracy(learned, few) > accuracy(DigitFeatures(), few) + 0.3
