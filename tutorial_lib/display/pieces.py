"""The processes of a running tutorial: notebook, controller, ranks, and what joins them."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

from tutorial_lib.display.palette import INK, MUTED, PAPER, style
from tutorial_lib.display.picture import Picture, new_figure

MAX_RANKS = 8  # more are drawn as the first ones, a gap and the last one
ROW_INCHES = 0.72


def running_pieces(
    notebook_pid: int, ranks: Mapping[int, tuple[str, int]], alt: str | None = None
) -> Picture:
    """Draw which processes run: cells go from left to right, MPI connects the ranks directly.

    Args:
        notebook_pid: process id of the notebook's kernel.
        ranks: host name and process id of each rank.
        alt: the text alternative; by default it names all of the processes.

    Returns:
        The picture.

    Raises:
        ValueError: no rank is running; start some.
    """
    if not ranks:
        raise ValueError("no ranks to draw: start some first")
    numbers = sorted(ranks)
    shown: list[int | None] = list(numbers)
    if len(numbers) > MAX_RANKS:
        shown = [*numbers[: MAX_RANKS - 2], None, numbers[-1]]
    height = max(len(shown), 2)
    figure = new_figure(8.4, ROW_INCHES * height + 0.2)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, 8.4), ylim=(height + 0.14, -0.14))
    axes.set_axis_off()

    middle = height / 2
    blue, orange, green = (style(index).colour for index in range(3))
    draw_box(axes, 0.15, middle, 1.9, f"notebook\nprocess {notebook_pid}", blue)
    draw_box(axes, 3.05, middle, 1.5, "controller\npasses cells on", orange)
    draw_arrow(axes, (2.1, middle), (3.0, middle), "cells,\nresults")
    top = middle - len(shown) / 2 + 0.5
    for row, rank in enumerate(shown):
        y = top + row
        if rank is None:
            axes.text(6.4, y, "…", ha="center", va="center", fontsize=14, color=INK)
            continue
        host, pid = ranks[rank]
        draw_box(axes, 5.35, y, 2.1, f"rank {rank}\nprocess {pid} on {host[:18]}", green)
        draw_arrow(axes, (4.6, middle), (5.3, y))
    if len(shown) > 1:
        draw_arrow(axes, (7.65, top), (7.65, top + len(shown) - 1), color=green)
        axes.text(7.8, middle, "MPI", va="center", fontsize=11, fontweight="bold", color=INK)
    told = ", ".join(f"rank {r} is process {ranks[r][1]} on {ranks[r][0]}" for r in numbers)
    return Picture(
        figure,
        alt
        or f"The notebook, process {notebook_pid}, sends cells to the controller, which passes "
        f"them on to the ranks: {told}. The ranks talk to each other by MPI.",
    )


def draw_box(axes: Axes, left: float, middle: float, width: float, text: str, edge: str) -> None:
    """Draw a box around two lines of text, the first one in bold."""
    axes.add_patch(
        FancyBboxPatch(
            (left, middle - 0.34),
            width,
            0.68,
            boxstyle="round,pad=0,rounding_size=0.08",
            facecolor=PAPER,
            edgecolor=edge,
            linewidth=2,
        )
    )
    name, detail = text.split("\n")
    x = left + width / 2
    axes.text(x, middle - 0.14, name, ha="center", va="center", fontweight="bold", color=INK)
    axes.text(x, middle + 0.15, detail, ha="center", va="center", fontsize=8, color=MUTED)


def draw_arrow(
    axes: Axes,
    start: tuple[float, float],
    stop: tuple[float, float],
    text: str = "",
    color: str = INK,
) -> None:
    """Draw an arrow with two heads, a text above its middle."""
    axes.annotate(
        "",
        xy=stop,
        xytext=start,
        arrowprops={"arrowstyle": "<|-|>", "color": color, "linewidth": 1.4},
    )
    x, y = (start[0] + stop[0]) / 2, (start[1] + stop[1]) / 2
    axes.text(x, y - 0.1, text, ha="center", va="bottom", fontsize=8, color=INK)
