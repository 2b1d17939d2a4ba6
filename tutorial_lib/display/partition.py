"""Which rank takes which part of a minibatch, or owns which columns of a matrix."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from tutorial_lib.display.palette import INK, PAPER, style
from tutorial_lib.display.picture import Picture, new_figure

MAX_PLACES = 40


def partition_strips(
    owners: Sequence[ArrayLike],
    alt: str | None = None,
    names: Sequence[str] | None = None,
    unit: str = "samples",
    xlabel: str = "samples in stream order, each with its rank",
) -> Picture:
    """Draw minibatches as strips of samples, each with the number of the rank that takes it.

    Args:
        owners: for each minibatch, the rank of each sample in the order of the stream; -1 where
            no rank takes it. At most 40 samples a minibatch.
        alt: the text alternative; by default it tells how many samples each rank takes.
        names: of the strips; by default minibatch 1, minibatch 2, ...
        unit: what a place is, in the plural, where it is no sample.
        xlabel: what the places are.

    Returns:
        The picture, one strip for each minibatch.

    Raises:
        ValueError: there is no minibatch, or one is too long to draw: draw a smaller one.
    """
    strips = [np.asarray(owner, dtype=int).ravel() for owner in owners]
    longest = max((len(strip) for strip in strips), default=0)
    if not 0 < longest <= MAX_PLACES:
        raise ValueError(f"minibatches of 1 to {MAX_PLACES} samples can be drawn, not {longest}")
    names = names or [f"minibatch {index + 1}" for index in range(len(strips))]
    figure = new_figure(max(4.6, 1.2 + 0.2 * longest), 0.45 + 0.34 * len(strips))
    axes = figure.add_subplot()
    for row, strip in enumerate(strips):
        for place, rank in enumerate(strip):
            look = style(rank) if rank >= 0 else None
            axes.barh(
                row,
                1,
                left=place,
                height=0.8,
                facecolor=look.colour if look else PAPER,
                edgecolor=PAPER if look else INK,
            )
            ink = look.on_colour if look else INK
            text = str(rank) if look else "?"
            axes.text(place + 0.5, row, text, ha="center", va="center", fontsize=9, color=ink)
    axes.set_yticks(range(len(strips)), names)
    axes.set_xticks([])
    axes.set_xlabel(xlabel, loc="left")
    axes.set(xlim=(0, max(longest, 17)), ylim=(len(strips) - 0.5, -0.5))
    axes.spines[:].set_visible(False)
    axes.tick_params(axis="y", length=0)
    return Picture(figure, alt or describe(strips, names, unit))


def describe(strips: Sequence[np.ndarray], names: Sequence[str], unit: str) -> str:
    """Tell in words how many samples of each minibatch each rank takes."""
    told = []
    for name, strip in zip(names, strips, strict=True):
        runs = "; ".join(
            (f"rank {rank} takes " if rank >= 0 else "nobody takes ")
            + f"{np.count_nonzero(strip == rank)} of {len(strip)} {unit}"
            for rank in np.unique(strip)
        )
        told.append(f"{name[:1].upper()}{name[1:]}: {runs}.")
    return " ".join(told)
