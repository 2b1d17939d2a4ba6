import pytest

from tutorial_lib.display.pieces import MAX_RANKS, running_pieces


def texts(picture):
    return [text.get_text() for text in picture.figure.axes[0].texts]


def test_every_process_is_drawn_and_told():
    picture = running_pieces(17, {1: ("b", 19), 0: ("a", 18)})
    for told in ("process 17", "process 18 on a", "process 19 on b", "MPI"):
        assert any(told in text for text in texts(picture))
        assert told in picture.alt
    assert picture.alt.index("rank 0") < picture.alt.index("rank 1")


def test_a_single_rank_has_nobody_to_talk_to():
    assert "MPI" not in texts(running_pieces(17, {0: ("a", 18)}))


def test_many_ranks_are_drawn_as_few_and_told_in_full():
    picture = running_pieces(1, {rank: ("a", 100 + rank) for rank in range(64)})
    drawn = [text for text in texts(picture) if text.startswith("rank ")]
    assert len(drawn) == MAX_RANKS - 1
    assert drawn[-1] == "rank 63"
    assert "rank 40" in picture.alt


def test_no_ranks_are_refused():
    with pytest.raises(ValueError, match="start some"):
        running_pieces(1, {})
