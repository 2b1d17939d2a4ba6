import numpy as np
import pytest
import torch

from tutorial_lib.exercises.cases import (
    NotAttempted,
    NotYet,
    brief,
    call,
    difference,
    expect,
    is_untouched,
)


@pytest.mark.parametrize("answer", [..., [..., ...], {"a": ...}, (..., [...]), {0: ..., 1: ...}])
def test_untouched(answer):
    assert is_untouched(answer)


@pytest.mark.parametrize("answer", [None, [], {}, [..., 1], {"a": 1, "b": ...}, "...", 0])
def test_touched(answer):
    assert not is_untouched(answer)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (3, 3),
        (np.int64(3), 3),
        (torch.tensor(3.0), 3),
        (3.0, 3),
        ((28, 28), (28, 28)),
        ([28, np.int32(28)], (28, 28)),
        (torch.ones(2, 3), np.ones((2, 3))),
        (torch.ones(2, requires_grad=True), torch.ones(2)),
        ([[1, 2], [3, 4]], torch.tensor([[1, 2], [3, 4]])),
        ({"a": 1, "b": (2, 3)}, {"b": (2, 3), "a": 1}),
        ("rank 0", "rank 0"),
        (float("nan"), float("nan")),
        (True, True),
        (np.bool_(True), True),
    ],
)
def test_equal_whatever_the_type(found, expected):
    assert difference(found, expected) == ""


@pytest.mark.parametrize(
    ("found", "expected", "told"),
    [
        (2, 3, "expected 3, found 2"),
        ("3", 3, "which is a str"),
        (None, 3, "found None"),
        (object, 3, "the function object"),
        (1, True, "expected True, found 1"),
        (torch.ones(3), np.ones(2), "expected shape (2,), found shape (3,)"),
        (torch.ones(2), torch.tensor([1.0, 2.0]), "at [1] expected 2, found 1"),
        ((28, 29), (28, 28), "value 1: expected 28, found 29"),
        ((28,), (28, 28), "expected 2 values"),
        ("ab", ("a", "b"), "expected 2 values"),
        (5, (28, 28), "found 5"),
        ((28, ...), (28, 28), "value 1 is still ..."),
        ({"a": 1}, {"a": 1, "b": 2}, "'b' is missing"),
        ({"a": 1, "b": ...}, {"a": 1, "b": 2}, "'b' is still ..."),
        ({"a": 1, "c": 2}, {"a": 1}, "'c' was not asked for"),
        ([1], {"a": 1}, "expected {'a': 1}, found [1]"),
        ([[1], [2, 3]], np.ones(2), "which is a list"),
    ],
)
def test_difference_is_told(found, expected, told):
    assert told in difference(found, expected)


def test_tolerance_is_absolute_and_inclusive_of_nothing_else():
    assert difference(1.0 + 9e-4, 1.0, tolerance=1e-3) == ""
    assert difference(1.0 + 2e-3, 1.0, tolerance=1e-3)
    assert difference(1.0 + 1e-9, 1.0)


def test_expect_names_the_case_and_the_hint():
    with pytest.raises(NotYet, match=r"^6 ranks: expected 15, found 21. Counted from 1\?$"):
        expect("6 ranks", 21, 15, hint="Counted from 1?")


def test_call_tells_what_went_wrong():
    def divide(n):
        return 1 // n

    with pytest.raises(NotYet, match=r"^divide\(0\) raised ZeroDivisionError: "):
        call(divide, 0)
    with pytest.raises(NotYet, match="expected a function, found 3"):
        call(3)
    with pytest.raises(NotYet, match="is a return missing"):
        call(lambda: None)
    with pytest.raises(NotAttempted):
        call(lambda: ...)


def test_brief_is_short_for_anything():
    class Broken:
        def __repr__(self):
            raise RuntimeError

    for value in (torch.ones(9, 9), list(range(10_000)), "x" * 10_000, Broken(), brief):
        assert len(brief(value)) < 120
    assert brief(torch.ones(9, 9)) == "Tensor of shape (9, 9)"
