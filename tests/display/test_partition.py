import numpy as np
import pytest

from tutorial_lib.display.partition import partition_strips


def test_every_sample_carries_its_rank():
    picture = partition_strips([np.array([0, 0, 1]), [2, -1]])
    drawn = [text.get_text() for text in picture.figure.axes[0].texts]
    assert drawn == ["0", "0", "1", "2", "?"]


def test_alternative_counts():
    assert partition_strips([[0, 0, 1], [-1, 3]]).alt == (
        "Minibatch 1: rank 0 takes 2 of 3 samples; rank 1 takes 1 of 3 samples. "
        "Minibatch 2: nobody takes 1 of 2 samples; rank 3 takes 1 of 2 samples."
    )


def test_strips_may_be_columns():
    picture = partition_strips([[0, 0, 1]], names=["2 ranks"], unit="columns", xlabel="columns")
    assert picture.alt == "2 ranks: rank 0 takes 2 of 3 columns; rank 1 takes 1 of 3 columns."
    (axes,) = picture.figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["2 ranks"]
    assert axes.get_xlabel() == "columns"


@pytest.mark.parametrize("owners", [[], [[]], [np.zeros(41)]])
def test_what_cannot_be_drawn_is_refused(owners):
    with pytest.raises(ValueError, match="1 to 40"):
        partition_strips(owners)
