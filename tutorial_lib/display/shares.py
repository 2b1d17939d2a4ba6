"""Which samples each rank gets in one epoch, by different ways of sharing them out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from matplotlib.patches import Rectangle

from tutorial_lib.display.palette import INK, PAPER, style
from tutorial_lib.display.picture import Picture, new_figure

MAX_PLACES = 40
BOX_INCHES = 0.33

Shares = Sequence[Sequence[int]]


class Place(NamedTuple):
    """One sample in one rank's share."""

    rank: int
    place: int
    sample: int
    is_again: bool


def share_table(shares: Mapping[str, Shares], num_samples: int, alt: str | None = None) -> Picture:
    """Draw every rank's share as a row of boxes, one box for each sample.

    A sample that was drawn already, in this row or an earlier place of another, has a dashed
    frame and the word "again".

    Args:
        shares: By name of the way, the samples of each rank in its order.
        num_samples: In the data set; those which nobody gets are named.
        alt: Text alternative; written from the shares when None.

    Returns:
        The picture, the ways one below the other.

    Raises:
        ValueError: There is no sample to draw, or a rank has more than 40: draw fewer.
    """
    rows = [share for ranks in shares.values() for share in ranks]
    longest = max(map(len, rows), default=0)
    if not 0 < longest <= MAX_PLACES:
        raise ValueError(f"shares of 1 to {MAX_PLACES} samples can be drawn, not {longest}")
    height = len(rows) + 1.6 * len(shares)
    figure = new_figure(max(4.6, BOX_INCHES * (longest + 2.5)), BOX_INCHES * height)
    axes = figure.add_subplot()
    top = 0.0
    for name, ranks in shares.items():
        title = name + ("; " + text if (text := _left_out(ranks, num_samples)) else "")
        axes.text(0, top + 0.75, title, va="center", fontsize=10, fontweight="bold")
        top += 1.2
        for rank in range(len(ranks)):
            axes.text(-0.2, top + rank + 0.5, f"rank {rank}", ha="right", va="center", fontsize=9)
        for place in places(ranks):
            look = style(place.rank)
            axes.add_patch(
                Rectangle(
                    (place.place + 0.05, top + place.rank + 0.08),
                    0.9,
                    0.84,
                    facecolor=PAPER if place.is_again else look.colour,
                    edgecolor=INK,
                    linestyle="--" if place.is_again else "-",
                    linewidth=1.6 if place.is_again else 0.8,
                )
            )
            ink = INK if place.is_again else look.on_colour
            x, y = place.place + 0.5, top + place.rank
            number_y = y + (0.38 if place.is_again else 0.5)
            axes.text(x, number_y, str(place.sample), ha="center", va="center", color=ink)
            if place.is_again:
                axes.text(x, y + 0.74, "again", ha="center", va="center", fontsize=6)
        top += len(ranks) + 0.4
    axes.set(xlim=(-1.8, max(longest, 9)), ylim=(height, 0))
    axes.axis("off")
    return Picture(figure, alt or describe(shares, num_samples))


def places(shares: Shares) -> Iterator[Place]:
    """Go through the shares place by place, as the ranks do, and mark samples met before."""
    met: set[int] = set()
    for place in range(max(map(len, shares), default=0)):
        for rank, share in enumerate(shares):
            if place < len(share):
                sample = int(share[place])
                yield Place(rank, place, sample, sample in met)
                met.add(sample)


def describe(shares: Mapping[str, Shares], num_samples: int) -> str:
    """Tell the shares in words: each rank's samples, those met again, those left out."""
    told = []
    for name, ranks in shares.items():
        rows = "; ".join(
            f"rank {rank} gets {', '.join(map(str, share)) or 'nothing'}"
            for rank, share in enumerate(ranks)
        )
        again = sorted(place.sample for place in places(ranks) if place.is_again)
        ends = [f"again: {', '.join(map(str, again))}"] if again else []
        ends += [text] if (text := _left_out(ranks, num_samples)) else []
        told.append("; ".join([f"{name}: {rows}", *ends]) + ".")
    return " ".join(told)


def _left_out(shares: Shares, num_samples: int) -> str:
    missing = sorted(set(range(num_samples)) - {int(n) for share in shares for n in share})
    return f"left out: {', '.join(map(str, missing))}" if missing else ""
