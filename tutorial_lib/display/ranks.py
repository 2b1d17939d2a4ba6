"""Who holds what: tables of the ranks' values around a collective, and timelines of who waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike

from tutorial_lib.display.palette import INK, MUTED, PAPER, style
from tutorial_lib.display.picture import Picture, new_figure

Holdings = Mapping[int, ArrayLike | None]

MAX_BOXES = 16  # a longer row is shown by its first boxes, an ellipsis and its last box
BOX_INCHES = 0.46
ROW_INCHES = 0.62
LABEL_INCHES = 0.75
WIDTH_INCHES = 11.0
TINT = 0.35  # share of a rank's colour in its boxes, so that black text stays readable on it
NEW = "new"


class Span(NamedTuple):
    """A stretch of time in which a rank did one thing."""

    name: str
    start_s: float
    stop_s: float


def rank_table(before: Holdings, *steps: tuple[str, Holdings], alt: str | None = None) -> Picture:
    """Draw who holds what before and after one or more collectives.

    Every rank is a row, every value a box, every operation an arrow to a new column of boxes.
    Below each value stands where it comes from: ``r1`` if rank 1 held that value at the start,
    ``new`` if no rank did, so that it was made by combining values. The colours say the same.
    So give the ranks different values to start with.

    Args:
        before: ``{rank: values}``, what each rank holds at the start; any shape, drawn flat.
            None or an empty array is a rank that holds nothing.
        steps: ``(operation, {rank: values})`` pairs, in order: what each rank holds afterwards.
        alt: Text alternative; written from the values when None.

    Returns:
        A picture of one table per stage, side by side, ranks in order.

    Raises:
        ValueError: If ``before`` names no rank, or a step names other ranks than ``before``: give
            every rank a row in every stage, None where it holds nothing.
    """
    if not before:
        raise ValueError("no ranks to draw: expected {rank: values} with at least one rank")
    ranks = sorted(before)
    for operation, held in steps:
        if sorted(held) != ranks:
            raise ValueError(
                f"the stage after {operation!r} has ranks {sorted(held)}, expected {ranks}: "
                "give every rank a row, None where it holds nothing"
            )
    stages = [_rows(before, ranks), *(_rows(held, ranks) for _, held in steps)]
    operations = [operation for operation, _ in steps]
    origin = {value: rank for rank in reversed(ranks) for value in stages[0][rank]}
    return Picture(_draw_table(stages, operations, origin), alt or _describe(stages, operations))


def rank_timeline(
    spans: Mapping[int, Sequence[Span | tuple[str, float, float]]], alt: str | None = None
) -> Picture:
    """Draw what each rank did when, so that one sees who waits for whom.

    Args:
        spans: ``{rank: [(name, start_s, stop_s), ...]}`` by a clock that the ranks share. Equal
            names get equal colours and hatches. Time is drawn from the earliest start, in ms.
        alt: Text alternative; written from the spans when None.

    Returns:
        A picture of one lane per rank, rank 0 on top.

    Raises:
        ValueError: If there are no spans at all.
    """
    lanes = {rank: [Span(*span) for span in spans[rank]] for rank in sorted(spans)}
    every = [span for lane in lanes.values() for span in lane]
    if not every:
        raise ValueError("no spans to draw: expected {rank: [(name, start_s, stop_s), ...]}")
    start_s = min(span.start_s for span in every)
    names = list(dict.fromkeys(span.name for span in every))
    if alt is None:
        alt = "Timeline. " + " ".join(
            f"Rank {rank}: "
            + ", ".join(f"{s.name} {1e3 * (s.stop_s - s.start_s):.1f} ms" for s in lane)
            + "."
            for rank, lane in lanes.items()
        )
    return Picture(_draw_timeline(lanes, names, start_s), alt)


def _rows(held: Holdings, ranks: Sequence[int]) -> dict[int, list[str]]:
    """The labels of each rank's boxes, a long row shortened in its middle."""
    rows = {}
    for rank in ranks:
        values = held[rank]
        labels = [] if values is None else [_label(value) for value in np.ravel(values).tolist()]
        if len(labels) > MAX_BOXES:
            labels = [*labels[: MAX_BOXES - 2], "…", labels[-1]]
        rows[rank] = labels
    return rows


def _label(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _describe(stages: Sequence[Mapping[int, Sequence[str]]], operations: Sequence[str]) -> str:
    def table(rows: Mapping[int, Sequence[str]]) -> str:
        return "; ".join(f"rank {r} holds {' '.join(row) or 'nothing'}" for r, row in rows.items())

    after = (
        f" After {name}: {table(rows)}." for name, rows in zip(operations, stages[1:], strict=True)
    )
    return f"Before: {table(stages[0])}." + "".join(after)


def _draw_table(
    stages: Sequence[Mapping[int, Sequence[str]]],
    operations: Sequence[str],
    origin: Mapping[str, int],
) -> Figure:
    widths = [max(2, *(len(row) for row in rows.values())) for rows in stages]
    gaps = [max(2.2, 0.24 * len(name) + 0.6) for name in operations]
    columns = sum(widths) + sum(gaps) + 0.1
    n_ranks = len(stages[0])
    box = min(BOX_INCHES, (WIDTH_INCHES - LABEL_INCHES) / columns)
    label_width = LABEL_INCHES / box
    columns += label_width
    figure = new_figure(box * columns, ROW_INCHES * n_ranks + 0.1)
    axes = figure.add_subplot()
    axes.set(xlim=(0, columns), ylim=(n_ranks, 0))
    axes.axis("off")

    for row, rank in enumerate(stages[0]):
        axes.text(0.1, row + 0.5, f"rank {rank}", va="center", fontsize=11, fontweight="bold")
    left = label_width
    for index, rows in enumerate(stages):
        if index:
            _draw_arrow(axes, operations[index - 1], left, gaps[index - 1], n_ranks / 2)
            left += gaps[index - 1]
        for row, labels in enumerate(rows.values()):
            _draw_boxes(axes, labels, origin, left, row, size=11 * box / BOX_INCHES)
        left += widths[index]
    return figure


def _draw_arrow(axes: Axes, operation: str, left: float, width: float, middle: float) -> None:
    axes.annotate(
        "",
        xy=(left + width - 0.25, middle),
        xytext=(left + 0.25, middle),
        arrowprops={"arrowstyle": "-|>", "linewidth": 1.6, "color": INK},
    )
    axes.text(left + width / 2, middle - 0.1, operation, ha="center", va="bottom", fontsize=10)


def _draw_boxes(
    axes: Axes,
    labels: Sequence[str],
    origin: Mapping[str, int],
    left: float,
    row: int,
    size: float,
) -> None:
    if not labels:
        axes.text(left + 0.1, row + 0.5, "nothing", va="center", fontsize=9, color=MUTED)
    for column, label in enumerate(labels):
        if label == "…":
            axes.text(left + column + 0.5, row + 0.5, label, ha="center", va="center")
            continue
        rank = origin.get(label)
        colour = PAPER if rank is None else _tint(style(rank).colour)
        axes.add_patch(
            Rectangle(
                (left + column + 0.04, row + 0.1),
                0.92,
                0.8,
                facecolor=colour,
                edgecolor=INK,
                linewidth=1.8 if rank is None else 0.8,
            )
        )
        centre = left + column + 0.5
        fitting = size if len(label) < 4 else 0.7 * size
        axes.text(centre, row + 0.42, label, ha="center", va="center", fontsize=fitting)
        source = NEW if rank is None else f"r{rank}"
        axes.text(centre, row + 0.76, source, ha="center", va="center", fontsize=0.7 * size)


def _draw_timeline(
    lanes: Mapping[int, Sequence[Span]], names: Sequence[str], start_s: float
) -> Figure:
    figure = new_figure(7, 0.5 * len(lanes) + 1.0)
    axes = figure.add_subplot()
    for row, lane in enumerate(lanes.values()):
        for span in lane:
            look = style(names.index(span.name))
            axes.barh(
                row,
                1e3 * (span.stop_s - span.start_s),
                left=1e3 * (span.start_s - start_s),
                height=0.6,
                facecolor=_tint(look.colour),
                hatch=look.hatch,
                edgecolor=INK,
                linewidth=0.8,
                label=span.name,
            )
    axes.set_yticks(range(len(lanes)), [f"rank {rank}" for rank in lanes])
    axes.tick_params(axis="y", length=0)
    axes.set(xlabel="milliseconds", ylim=(len(lanes) - 0.5, -0.5))
    axes.set_xlim(left=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    handles, labels = axes.get_legend_handles_labels()
    first = {
        label: handle for handle, label in zip(reversed(handles), reversed(labels), strict=True)
    }
    figure.legend(
        [first[name] for name in names],
        names,
        loc="outside upper right",
        ncols=len(names),
        frameon=False,
    )
    return figure


def _tint(colour: str) -> tuple[float, float, float]:
    red, green, blue = (1 - TINT * (1 - part) for part in to_rgb(colour))
    return red, green, blue
