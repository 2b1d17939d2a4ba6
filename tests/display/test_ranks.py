"""The drawings tell, in words and in boxes, exactly the values they were given."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure

from tutorial_lib.display.ranks import MAX_BOXES, Span, rank_table, rank_timeline


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_every_value_of_every_rank_is_drawn_and_told(world_size: int) -> None:
    before = {rank: np.arange(8) + 10 * (rank + 1) for rank in range(world_size)}
    total = np.sum(list(before.values()), axis=0)
    picture = rank_table(before, ("all_reduce", dict.fromkeys(before, total)))
    drawn = texts(picture.figure)
    for rank, values in before.items():
        words = " ".join(map(str, values))
        assert f"rank {rank} holds {words}" in picture.alt
        assert drawn.count(f"r{rank}") >= len(values)
    assert picture.alt.count(" ".join(map(str, total))) == max(world_size, 2 * (world_size == 1))
    assert "all_reduce" in drawn
    assert picture.png().startswith(b"\x89PNG")


def test_a_box_names_the_rank_its_value_came_from() -> None:
    whole = {0: [1, 2, 3, 4], 1: None}
    copied = texts(rank_table(whole, ("scatter", {0: [1, 2], 1: [3, 4]})).figure)
    assert copied.count("r0") == 8
    assert "new" not in copied
    assert "nothing" in copied
    combined = texts(rank_table({0: [1], 1: [20]}, ("reduce", {0: [21], 1: [20]})).figure)
    assert (combined.count("new"), combined.count("r1")) == (1, 2)


def test_steps_follow_each_other_and_ranks_are_in_order() -> None:
    picture = rank_table({1: [2], 0: [1]}, ("first", {1: [1], 0: [2]}), ("second", {1: [], 0: []}))
    assert picture.alt == (
        "Before: rank 0 holds 1; rank 1 holds 2. After first: rank 0 holds 2; rank 1 holds 1. "
        "After second: rank 0 holds nothing; rank 1 holds nothing."
    )


def test_a_long_row_is_shortened_in_the_middle() -> None:
    picture = rank_table({0: np.arange(100)})
    assert picture.alt.startswith("Before: rank 0 holds 0 1 2 ")
    assert picture.alt.endswith("… 99.")
    assert len(picture.alt.split("holds ")[1].split()) == MAX_BOXES


def test_fractions_are_rounded_and_shapes_are_flat() -> None:
    picture = rank_table({0: np.array([[1.0, 2 / 3], [0.5, 1e6]])}, alt=None)
    assert picture.alt == "Before: rank 0 holds 1 0.6667 0.5 1e+06."
    assert rank_table({0: [1]}, alt="one box").alt == "one box"


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(ValueError, match="no ranks"):
        rank_table({})
    with pytest.raises(ValueError, match=r"after 'gather' has ranks \[0\]"):
        rank_table({0: [1], 1: [2]}, ("gather", {0: [1, 2]}))
    with pytest.raises(ValueError, match="no spans"):
        rank_timeline({0: []})


def test_the_timeline_starts_at_zero_and_tells_durations() -> None:
    picture = rank_timeline(
        {
            1: [("compute", 100.0, 100.2)],
            0: [Span("compute", 100.0, 100.05), ("wait", 100.05, 100.2)],
        }
    )
    assert picture.alt == (
        "Timeline. Rank 0: compute 50.0 ms, wait 150.0 ms. Rank 1: compute 200.0 ms."
    )
    axes = picture.figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["rank 0", "rank 1"]
    assert min(patch.get_x() for patch in axes.patches) == 0
    assert axes.get_xlim()[0] == 0
    legend = [text.get_text() for text in picture.figure.legends[0].get_texts()]
    assert legend == ["compute", "wait"]
    looks = {(patch.get_label(), patch.get_hatch()) for patch in axes.patches}
    assert len({hatch for _, hatch in looks}) == 2
