import pytest

from tutorial_lib.display.shares import share_table

SHARES = {
    "padded": [[0, 2, 4], [1, 3, 0]],
    "dropped": [[0, 2], [1, 3]],
    "whole": [[0, 1, 2], [3, 4]],
}


def test_repeats_and_losses_are_drawn_and_told():
    picture = share_table(SHARES, 5)
    assert picture.alt == (
        "padded: rank 0 gets 0, 2, 4; rank 1 gets 1, 3, 0; again: 0. "
        "dropped: rank 0 gets 0, 2; rank 1 gets 1, 3; left out: 4. "
        "whole: rank 0 gets 0, 1, 2; rank 1 gets 3, 4."
    )
    (axes,) = picture.figure.axes
    texts = [text.get_text() for text in axes.texts]
    assert texts.count("again") == 1
    assert "dropped; left out: 4" in texts
    assert [patch.get_linestyle() for patch in axes.patches].count("--") == 1
    assert picture.png().startswith(b"\x89PNG")


@pytest.mark.parametrize("shares", [{}, {"none": [[], []]}, {"long": [list(range(41))]}])
def test_what_cannot_be_drawn_is_refused(shares):
    with pytest.raises(ValueError, match="1 to 40"):
        share_table(shares, 5)
