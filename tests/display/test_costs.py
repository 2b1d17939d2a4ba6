"""Curves of cost tell what was measured, in units that a reader knows."""

from __future__ import annotations

import numpy as np
import pytest

from tutorial_lib.display.costs import cost_curve, duration, size


def test_curve_and_words_hold_the_values() -> None:
    sizes = 4 ** np.arange(1, 8)
    times = 5e-5 + sizes * 1e-9
    picture = cost_curve(sizes, {"all-reduce": times}, marks={"gradients": 456_256})
    assert picture.alt == (
        "Chart of time against size of the message, both axes logarithmic. "
        "all-reduce: 50 µs at 4 B, 66 µs at 16 kB. Marked: gradients, 456 kB."
    )
    (line, mark) = picture.figure.axes[0].lines
    assert np.array_equal(line.get_xdata(), sizes)
    assert np.array_equal(line.get_ydata(), times)
    assert mark.get_xdata()[0] == 456_256
    assert picture.png().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("value", "text"), [(3e-7, "0.3 µs"), (6e-5, "60 µs"), (2.4e-3, "2.4 ms"), (1.5, "1.5 s")]
)
def test_durations(value: float, text: str) -> None:
    assert duration(value) == text


@pytest.mark.parametrize(("value", "text"), [(4, "4 B"), (1024, "1.0 kB"), (4194304, "4.2 MB")])
def test_sizes(value: float, text: str) -> None:
    assert size(value) == text


def test_times_must_pair_up_with_sizes() -> None:
    with pytest.raises(ValueError, match="gloo: 2 times for 3 sizes"):
        cost_curve([1, 2, 3], {"gloo": [1, 2]})
