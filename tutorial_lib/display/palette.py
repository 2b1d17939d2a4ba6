"""Colours that stay apart for colour-blind readers, each paired with a line and a hatch.

No picture relies on colour alone: whatever is told apart by a colour here is told apart by the
dash pattern or the hatch beside it too, and by a label where there is room for one.
"""

from __future__ import annotations

from dataclasses import dataclass

INK = "#1a1a1a"
PAPER = "#ffffff"
MUTED = "#6b6b6b"


@dataclass(frozen=True)
class Style:
    """How one series or one rank is drawn.

    Args:
        colour: fill or line colour, from the palette of Okabe and Ito (2008).
        on_colour: a text colour that is readable on ``colour`` (contrast at least 4.5).
        dashes: matplotlib's dash pattern for a line.
        width: line width in points; later series are thinner, so that a curve which lies
            exactly on an earlier one leaves it visible on both sides.
        hatch: matplotlib's hatch for an area.
    """

    colour: str
    on_colour: str
    dashes: tuple[float, tuple[float, ...]]
    width: float
    hatch: str


STYLES = (
    Style("#0072b2", PAPER, (0, ()), 3.2, ""),
    Style("#e69f00", INK, (0, (4, 2)), 2.0, "//"),
    Style("#009e73", INK, (0, (1, 1.5)), 2.0, ".."),
    Style("#cc79a7", INK, (0, (6, 2, 1, 2)), 1.6, "\\\\"),
    Style("#56b4e9", INK, (0, (8, 2)), 1.6, "xx"),
    Style("#d55e00", INK, (0, (3, 1, 1, 1, 1, 1)), 1.6, "++"),
    Style("#f0e442", INK, (0, (1, 3)), 2.0, "oo"),
    Style("#999999", INK, (0, (10, 3, 2, 3)), 1.6, "--"),
)


def style(index: int) -> Style:
    """Return the style of series or rank number ``index``; they repeat after eight."""
    return STYLES[index % len(STYLES)]
