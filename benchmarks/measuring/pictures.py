"""What benchmarks draw that no notebook does."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from tutorial_lib.display.palette import INK, style
from tutorial_lib.display.picture import Picture, new_figure


def rate_bars(names: Sequence[str], rates: Sequence[Sequence[float]], unit: str) -> Picture:
    """Draw a bar for each contestant, as long as its median, with a line over its rounds' range.

    Args:
        names: Of the contestants, from top to bottom.
        rates: Of each, one per round.
        unit: Of the rates.
    """
    figure = new_figure(7.2, 0.6 + 0.32 * len(names))
    axes = figure.add_subplot()
    medians = [statistics.median(found) for found in rates]
    look = style(0)
    axes.barh(names, medians, color=look.colour)
    for place, found in enumerate(rates):
        axes.plot([min(found), max(found)], [place, place], color=INK, linewidth=1.5)
        axes.text(max(found), place, f"  {medians[place]:.1f}", va="center", color=INK)
    axes.invert_yaxis()
    axes.set_xlabel(unit, color=INK)
    axes.set_xlim(0, 1.12 * max(map(max, rates)))
    axes.spines[["top", "right"]].set_visible(False)
    values = "; ".join(f"{n}: {m:.1f}" for n, m in zip(names, medians, strict=True))
    return Picture(figure, f"Bar chart of medians, in {unit}. {values}.")
