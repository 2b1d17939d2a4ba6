from itertools import combinations

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from tutorial_lib.display.palette import INK, MUTED, PAPER, STYLES, style


def luminance(colour: str) -> float:
    channels = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return float(np.dot(channels, [0.2126, 0.7152, 0.0722]))


def contrast(one: str, other: str) -> float:
    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("look", STYLES, ids=lambda look: look.colour)
def test_text_is_readable_on_its_colour(look):
    assert contrast(look.colour, look.on_colour) >= 4.5


@pytest.mark.parametrize("colour", [INK, MUTED])
def test_text_is_readable_on_paper(colour):
    assert contrast(colour, PAPER) >= 4.5


def test_no_two_styles_differ_by_colour_alone():
    for one, other in combinations(STYLES, 2):
        assert one.colour != other.colour
        assert one.dashes != other.dashes
        assert one.hatch != other.hatch


def test_a_later_line_leaves_the_first_visible():
    assert all(look.width < STYLES[0].width for look in STYLES[1:])


def test_styles_repeat():
    assert style(9) == style(1)
