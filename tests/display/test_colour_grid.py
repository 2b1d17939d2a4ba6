import io

import numpy as np
import pytest
from PIL import Image

from tutorial_lib.display.colour_grid import colour_grid


def pixels(picture):
    return np.asarray(Image.open(io.BytesIO(picture.png())).convert("RGB"))


def test_red_is_red():
    images = np.zeros((3, 3, 8, 8), np.uint8)
    images[:, 0] = 255
    drawn = pixels(colour_grid(images, 2, "three red squares", ["a", "b", "c"]))
    is_red = (drawn == [255, 0, 0]).all(axis=2)
    assert is_red.mean() > 0.3
    assert not is_red[:, -drawn.shape[1] // 4 :][-drawn.shape[0] // 4 :].any(), (
        "the fourth is empty"
    )


def test_numbers_of_any_range_use_all_of_the_brightness():
    images = np.linspace(-3, 5, 3 * 16 * 16).reshape(1, 3, 16, 16)
    drawn = pixels(colour_grid(images, 1, "a gradient"))
    assert drawn[..., 0].min() < 10
    assert drawn[..., 2].max() > 245


@pytest.mark.parametrize(
    ("images", "captions"),
    [(np.zeros((2, 8, 8)), None), (np.zeros((0, 3, 8, 8)), None), (np.zeros((2, 3, 8, 8)), ["a"])],
)
def test_wrong_shapes_are_refused(images, captions):
    with pytest.raises(ValueError, match=r"expected|captions"):
        colour_grid(images, 2, "nothing", captions)
