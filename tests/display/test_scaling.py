"""What was measured can't be taken for what was modelled, in the picture or in its words."""

from __future__ import annotations

import pytest

from tutorial_lib.display.scaling import (
    Panel,
    Series,
    count,
    measured_and_modelled,
    rate,
    share_bars,
)

FLAT = Series("flat", {1: 100.0, 2: 180.0}, {8: 500.0, 16: 800.0})


def test_lines_and_words_keep_them_apart() -> None:
    panel = Panel("strong", [FLAT], "ranks", "samples/s", {1: 100.0, 16: 1600.0}, count, rate)
    picture = measured_and_modelled([panel])
    modelled, measured, ideal = picture.figure.axes[0].lines
    assert (modelled.get_linestyle(), modelled.get_markerfacecolor()) == ("--", "none")
    assert measured.get_linestyle() == "-"
    assert list(measured.get_xdata()) == [1, 2]
    assert list(modelled.get_ydata()) == [500.0, 800.0]
    assert ideal.get_linestyle() == ":"
    assert picture.alt == (
        "strong: chart of samples/s against ranks, logarithmic. "
        "flat, measured: 100 at 1, 180 at 2. flat, modelled: 500 at 8, 800 at 16."
    )
    (legend,) = picture.figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "flat",
        "measured",
        "modelled",
        "ideal",
    ]
    assert picture.png().startswith(b"\x89PNG")


def test_a_name_looks_alike_in_every_panel() -> None:
    other = Series("other", {1: 1.0})
    panels = [Panel("a", [FLAT, other], "n", "t"), Panel("b", [other], "n", "t")]
    first, second = measured_and_modelled(panels).figure.axes
    assert first.lines[-1].get_color() == second.lines[0].get_color()
    assert first.lines[-1].get_marker() == second.lines[0].get_marker()


def test_nothing_to_draw() -> None:
    with pytest.raises(ValueError, match="nothing to draw in 'empty'"):
        measured_and_modelled([Panel("empty", [Series("flat")], "ranks", "time")])


def test_parts_of_bars() -> None:
    rows = {"2 ranks": {"working": 3.0, "waiting": 1.0}}
    picture = share_bars(rows, "milliseconds", lambda value: f"{value:.1f}")
    assert picture.alt == "Bars of milliseconds. 2 ranks: working 3.0, waiting 1.0."
    working, waiting = picture.figure.axes[0].patches
    assert waiting.get_x() == working.get_width() == 3.0
    assert working.get_hatch() != waiting.get_hatch()


@pytest.mark.parametrize(("value", "text"), [(950, "950"), (1200, "1.2k"), (36000, "36k")])
def test_rates(value: float, text: str) -> None:
    assert rate(value) == text
