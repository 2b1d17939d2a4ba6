import base64
import re
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from tutorial_lib.display.curves import loss_curves
from tutorial_lib.display.picture import Picture, new_figure


@pytest.fixture
def picture() -> Picture:
    figure = new_figure(2, 1)
    figure.add_subplot().plot([1, 2])
    return Picture(figure, 'A line\n  that "rises" & ends')


def test_alternative_is_one_escaped_line_in_html_and_plain_in_text(picture):
    bundle = picture._repr_mimebundle_()
    assert bundle["text/plain"] == 'A line that "rises" & ends'
    assert '<img alt="A line that &quot;rises&quot; &amp; ends"' in bundle["text/html"]


def test_html_holds_the_png(picture):
    encoded = re.search(r"base64,([^\"]+)", picture.html())[1]
    assert base64.b64decode(encoded) == picture.png()
    image = Image.open(BytesIO(picture.png()))
    assert image.size == (2 * 144, 144)
    assert np.asarray(image.convert("RGBA"))[..., 3].min() == 255, "opaque, for dark themes"


def test_equal_figures_give_equal_bytes():
    one, other = (loss_curves({"g": [2.0, 1.0], "d": [1.0, 3.0]}) for _ in range(2))
    assert one.png() == other.png()


def test_save_makes_folders_and_leaves_only_the_picture(picture, tmp_path):
    path = picture.save(tmp_path / "new" / "line.png")
    assert path.read_bytes() == picture.png()
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("alt", ["", "  \n"])
def test_no_picture_without_words(alt):
    with pytest.raises(ValueError, match="text alternative"):
        Picture(new_figure(1, 1), alt)


def test_figure_of_hand_placed_axes_draws_without_a_warning():
    figure = new_figure(1, 1)
    figure.add_axes((0, 0, 1, 1))
    assert Picture(figure, "empty axes").png().startswith(b"\x89PNG")
