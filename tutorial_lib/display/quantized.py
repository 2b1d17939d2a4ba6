"""A column of numbers before and after it was put into few bits, and what that left out."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from tutorial_lib.display.palette import INK, MUTED, style
from tutorial_lib.display.picture import Picture, new_figure

MAX_ELEMENTS = 160
ROWS = ("before", "sent", "left out")


def quantized_column(before: ArrayLike, sent: ArrayLike, alt: str | None = None) -> Picture:
    """Draw a column as bars: what it was, what of it was sent, and the difference.

    Args:
        before: (n,), n at most 160.
        sent: (n,), the values that the receivers see.
        alt: the text alternative; by default it tells the numbers of values and the sizes.

    Returns:
        The picture, three rows of bars on one scale.

    Raises:
        ValueError: the columns differ in length, or have no element or too many: draw a part.
    """
    was, is_sent = (np.asarray(values, dtype=float).ravel() for values in (before, sent))
    if len(was) != len(is_sent) or not 0 < len(was) <= MAX_ELEMENTS:
        raise ValueError(
            f"columns of {len(was)} and {len(is_sent)} elements: expected two of one length, "
            f"1 to {MAX_ELEMENTS}"
        )
    left_out = was - is_sent
    figure = new_figure(8.4, 3.6)
    panels = figure.subplots(3, 1, sharex=True, sharey=True)
    for index, (axes, values) in enumerate(zip(panels, (was, is_sent, left_out), strict=True)):
        look = style(index)
        axes.bar(range(len(values)), values, width=0.8, color=look.colour)
        axes.axhline(0, color=INK, linewidth=0.8)
        axes.set_ylabel(ROWS[index], color=INK)
        axes.grid(axis="y", color=MUTED, alpha=0.25, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    for value in np.unique(is_sent) if len(np.unique(is_sent)) <= 2 else ():
        panels[0].axhline(value, color=INK, linestyle=":", linewidth=1.2)
    panels[-1].set_xlabel("element of the column", color=INK)
    return Picture(figure, alt or describe(was, is_sent))


def describe(before: ArrayLike, sent: ArrayLike) -> str:
    """Tell in words how many values were sent, and how large what was left out is."""
    was, is_sent = np.asarray(before, dtype=float), np.asarray(sent, dtype=float)
    size, left = (float(np.sqrt(np.mean(np.square(v)))) for v in (was, was - is_sent))
    return (
        f"Three rows of {len(was)} bars. Before: {len(np.unique(was))} different values, "
        f"{size:.3g} large (root mean square). Sent: {len(np.unique(is_sent))} different values, "
        f"from {is_sent.min():.3g} to {is_sent.max():.3g}. Left out: {left:.3g} large."
    )
