"""The bars are the column's values, and the words tell what they show."""

import numpy as np
import pytest

from tutorial_lib.display.quantized import quantized_column

BEFORE = [3.0, 1.0, -2.0, -4.0]
SENT = [2.0, 2.0, -3.0, -3.0]


def test_bars_are_the_values() -> None:
    picture = quantized_column(BEFORE, SENT)
    heights = [[bar.get_height() for bar in axes.patches] for axes in picture.figure.axes]
    assert heights == [BEFORE, SENT, [1.0, -1.0, 1.0, -1.0]]
    dotted = [line.get_ydata()[0] for line in picture.figure.axes[0].lines[1:]]
    assert dotted == [-3.0, 2.0], "the two values of one bit are marked in the column"
    assert picture.png().startswith(b"\x89PNG")


def test_words_tell_the_sizes() -> None:
    assert quantized_column(BEFORE, SENT).alt == (
        "Three rows of 4 bars. Before: 4 different values, 2.74 large (root mean square). "
        "Sent: 2 different values, from -3 to 2. Left out: 1 large."
    )


@pytest.mark.parametrize(("before", "sent"), [([], []), ([1], [1, 2]), (np.ones(161),) * 2])
def test_columns_must_pair_up(before, sent) -> None:
    with pytest.raises(ValueError, match="1 to 160"):
        quantized_column(before, sent)
