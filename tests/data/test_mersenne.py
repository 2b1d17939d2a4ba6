import pytest

from tutorial_lib.data.mersenne import MersenneTwister64


@pytest.mark.parametrize(
    ("seed", "place", "number"),
    [
        (5489, 9_999, 9981545732273789042),  # the C++ standard names this one
        (5489, 311, 1370093900783164344),
        (5489, 312, 6776537281339823025),
        (0, 0, 2947667278772165694),
        (0, 9_999, 16335088777103562557),
        (1, 1, 2516265689700432462),
    ],
)
def test_numbers_are_those_of_cpp(seed, place, number):
    assert int(MersenneTwister64(seed).draw(place + 1)[-1]) == number


def test_drawing_in_pieces_changes_nothing():
    whole = MersenneTwister64(7).draw(1000).tolist()
    pieces = MersenneTwister64(7)
    drawn = [number for count in (0, 1, 311, 2, 686) for number in pieces.draw(count).tolist()]
    assert drawn == whole


def test_a_shuffle_keeps_all_items():
    items = list(range(100))
    MersenneTwister64(3).shuffle(items)
    assert sorted(items) == list(range(100)) != items
    nothing: list[int] = []
    MersenneTwister64(3).shuffle(nothing)
    assert nothing == []
