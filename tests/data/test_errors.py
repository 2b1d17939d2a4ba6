from __future__ import annotations

import pickle

import pytest

from tutorial_lib.data.errors import DataError


def test_message_answers_where_what_was_expected_and_found_and_what_to_do() -> None:
    error = DataError("/data/x.txt", "10 values", "9", "Correct the line", "line 7")
    assert str(error) == "/data/x.txt, line 7: expected 10 values, found 9. Correct the line."


def test_place_inside_the_file_is_optional() -> None:
    assert str(DataError("x", "a", "b", "C")) == "x: expected a, found b. C."


def test_is_a_value_error_as_cntks_was() -> None:
    with pytest.raises(ValueError, match="expected a"):
        raise DataError("x", "a", "b", "C")


def test_survives_the_way_from_a_rank() -> None:
    error = DataError("x", "a", "b", "C", "line 1")
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == str(error)
    assert (copy.path, copy.where) == (error.path, error.where)
