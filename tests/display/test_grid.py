import numpy as np
import pytest

from tutorial_lib.display.grid import sample_grid
from tutorial_lib.display.tiling import GAP, tile


def test_every_image_is_found_at_its_place():
    images = np.random.default_rng(0).uniform(-1, 1, (6, 5, 4)).astype(np.float32)
    whole = tile(images, rows=2, cols=3, vmin=-1, vmax=1)
    assert whole.shape == (2 * 5 + GAP, 3 * 4 + 2 * GAP)
    for index, image in enumerate(images):
        top, left = index // 3 * (5 + GAP), index % 3 * (4 + GAP)
        np.testing.assert_allclose(
            whole[top : top + 5, left : left + 4], (image + 1) / 2, atol=1e-6
        )


def test_empty_places_and_gaps_are_white_and_values_are_clipped():
    whole = tile(np.full((1, 2, 2), -7.0, np.float32), rows=1, cols=2, vmin=-1, vmax=1)
    assert whole[:, :2].max() == 0
    assert whole[:, 2:].min() == 1


def test_flat_images_draw_as_square_ones():
    images = np.random.default_rng(0).uniform(-1, 1, (4, 28, 28))
    flat = sample_grid(images.reshape(4, 784), 2, 2)
    assert flat.png() == sample_grid(images, 2, 2).png()


def test_default_range_keeps_the_negative_half_of_tanh():
    dark, darker = (sample_grid(np.full((1, 2, 2), v), 1, 1).png() for v in (-0.5, -0.9))
    assert dark != darker


def test_default_alternative_tells_what_is_seen():
    alt = sample_grid(np.zeros((5, 784)), 2, 3).alt
    assert alt.startswith("5 grey images of 28 by 28 pixels in 2 rows of 3")
    assert "0.50" in alt


def test_captions_are_drawn_one_for_each_image():
    images = np.zeros((2, 28, 28))
    with_words = sample_grid(images, 1, 2, captions=["label 3", "label 5"])
    drawn = [text.get_text() for text in with_words.figure.axes[0].texts]
    assert drawn == ["label 3", "label 5"]
    with pytest.raises(ValueError, match="zip"):
        sample_grid(images, 1, 2, captions=["label 3"])


@pytest.mark.parametrize("shape", [(3,), (2, 10), (1, 2, 3, 4), (0, 784)])
def test_other_shapes_are_refused(shape):
    with pytest.raises(ValueError, match="expected"):
        sample_grid(np.zeros(shape))


def test_more_images_than_places_are_refused():
    with pytest.raises(ValueError, match=r"5 images do not fit.*images\[:4\]"):
        sample_grid(np.zeros((5, 784)), 2, 2)
