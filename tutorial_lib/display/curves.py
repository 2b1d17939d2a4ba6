"""Losses against steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tutorial_lib.display.palette import INK, MUTED, style
from tutorial_lib.display.picture import Picture, new_figure


def loss_curves(
    series: Mapping[str, Sequence[float]],
    steps: Mapping[str, Sequence[int]] | None = None,
    title: str | None = None,
    xlabel: str = "step",
    ylabel: str = "loss per sample",
    log_scale: bool = False,
    alt: str | None = None,
) -> Picture:
    """Draw one curve per name, told apart by dash pattern and width as well as by colour.

    A later curve that lies exactly on an earlier one leaves it visible.

    Args:
        series: the values by name, in drawing order; nan and inf are left out as gaps.
        steps: the step of each value by name; 1, 2, 3, ... where a name is missing.
        title: printed above.
        xlabel: what a step is.
        ylabel: what the values are.
        log_scale: draw values on a logarithmic axis; zeros are left out.
        alt: the text alternative; by default each curve's first, lowest, highest and last value.

    Returns:
        The picture.

    Raises:
        ValueError: there are no values at all, or a name has steps of another length.
    """
    steps = steps or {}
    figure = new_figure(6.6, 3.4)
    axes = figure.add_subplot()
    stories = []
    for index, (name, values) in enumerate(series.items()):
        x = list(steps.get(name, range(1, len(values) + 1)))
        if len(x) != len(values):
            raise ValueError(f"{name}: {len(values)} values at {len(x)} steps; they must pair up")
        look = style(index)
        y = [v if math.isfinite(v) and (v > 0 or not log_scale) else math.nan for v in values]
        few = len(values) <= 12
        axes.plot(
            x,
            y,
            label=name,
            color=look.colour,
            linewidth=look.width,
            linestyle=look.dashes,
            marker="o" if few else "",
            markersize=4,
        )
        stories.append(story(name, x, values))
    if not any(len(values) for values in series.values()):
        raise ValueError("nothing to draw: every series is empty")
    if log_scale:
        axes.set_yscale("log")
    axes.set_xlabel(xlabel, color=INK)
    axes.set_ylabel(ylabel, color=INK)
    if title:
        axes.set_title(title, fontsize=11, color=INK)
    axes.grid(color=MUTED, alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, handlelength=4)
    return Picture(figure, alt or f"Chart of {ylabel} against {xlabel}. " + " ".join(stories))


def story(name: str, steps: Sequence[int], values: Sequence[float]) -> str:
    """Tell one curve in words: where it starts, its extremes with their steps, where it ends."""
    finite = [
        (value, step) for value, step in zip(values, steps, strict=True) if math.isfinite(value)
    ]
    if not finite:
        return f"{name}: no finite value."
    (low, at_low), (high, at_high) = min(finite), max(finite)
    told = (
        f"{name}: {finite[0][0]:.3g} at step {finite[0][1]}, lowest {low:.3g} at {at_low}, "
        f"highest {high:.3g} at {at_high}, {finite[-1][0]:.3g} at the last step {finite[-1][1]}"
    )
    missing = len(values) - len(finite)
    return f"{told}; {missing} not finite." if missing else f"{told}."
