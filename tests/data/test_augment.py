import pytest
import torch

from tutorial_lib.data.augment import augment, central_crop, standardize
from tutorial_lib.data.noise import NoiseSource

N = 60


@pytest.fixture
def images():
    return torch.randint(0, 256, (N, 3, 32, 32), dtype=torch.uint8)


@pytest.fixture
def random():
    return NoiseSource(8, seed=5).next(N)


def step_by_step(image, numbers):
    """TensorFlow's five operations one after the other, in float64."""
    top, left = (int((x + 1) / 2 * 9) for x in numbers[:2].double())
    crop = image[:, top : top + 24, left : left + 24].double()
    if numbers[2] < 0:
        crop = crop.flip(2)
    crop = crop + 63 * numbers[3].double()
    mean = crop.mean(dim=(1, 2), keepdim=True)
    crop = (crop - mean) * (1 + 0.8 * numbers[4].double()) + mean
    return (crop - crop.mean()) / max(crop.std(correction=0), (3 * 24 * 24) ** -0.5)


def test_one_pass_equals_five_operations(images, random):
    expected = torch.stack([step_by_step(*pair) for pair in zip(images, random, strict=True)])
    torch.testing.assert_close(augment(images, random).double(), expected, atol=1e-4, rtol=0)


def test_pictures_are_standardised(images, random):
    changed = augment(images, random).flatten(1)
    assert changed.dtype == torch.float32
    torch.testing.assert_close(changed.mean(dim=1), torch.zeros(N), atol=1e-4, rtol=0)
    torch.testing.assert_close(changed.std(dim=1, correction=0), torch.ones(N), atol=1e-4, rtol=0)


def test_each_picture_depends_on_its_own_row_alone(images, random):
    whole = augment(images, random)
    parts = [augment(images[s], random[s]) for s in (slice(0, 7), slice(7, 7), slice(7, N))]
    assert torch.equal(torch.cat(parts), whole)


def test_all_places_and_both_directions_occur():
    marked = torch.arange(32, dtype=torch.uint8).expand(2000, 1, 32, 32)
    crops = augment(marked, NoiseSource(8, seed=1).next(2000))
    assert 800 < (crops[:, 0, 0, 0] > crops[:, 0, 0, 1]).sum() < 1200, "half of them flipped"
    places = {
        tuple(row.tolist()) for row in (NoiseSource(8, 1).next(2000)[:, :2] + 1).mul(4.5).int()
    }
    assert places == {(top, left) for top in range(9) for left in range(9)}


def test_the_extremes_of_chance_stay_inside(images):
    for value in (-1.0, 1.0 - 2**-24):
        assert augment(images, torch.full((N, 8), value)).isfinite().all()


def test_a_picture_of_one_colour_becomes_0():
    grey = torch.full((2, 3, 32, 32), 77, dtype=torch.uint8)
    assert standardize(grey).abs().max() < 1e-3
    assert augment(grey, NoiseSource(8).next(2)).abs().max() < 0.01


def test_the_floor_is_one_over_the_root_of_the_number_of_values():
    faint = torch.zeros(1, 3, 4, 4)
    faint[0, 0, 0, 0] = 1e-3
    deviation = standardize(faint).std(correction=0).item()
    assert deviation == pytest.approx(faint.std(correction=0).item() * 48**0.5, rel=1e-4)


def test_the_central_crop_is_the_middle_and_the_caller_keeps_its_own(images):
    floats = images.float()
    before = floats.clone()
    expected = standardize(images[:, :, 4:28, 4:28])
    assert torch.equal(central_crop(floats), expected)
    assert torch.equal(floats, before)


def test_wrong_shapes_are_refused(images, random):
    with pytest.raises(ValueError, match="take random numbers"):
        augment(images, random[:-1])
    with pytest.raises(ValueError, match="have no crop of 40"):
        augment(images, random, crop=40)
