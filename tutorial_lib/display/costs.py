"""What a message costs: time against size, both on logarithmic axes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
from numpy.typing import ArrayLike

from tutorial_lib.display.palette import INK, MUTED, style
from tutorial_lib.display.picture import Picture, new_figure


def cost_curve(
    sizes_bytes: ArrayLike,
    times_s: Mapping[str, ArrayLike],
    marks: Mapping[str, float] | None = None,
    xlabel: str = "size of the message",
    alt: str | None = None,
) -> Picture:
    """Draw how long something takes by a number of bytes: a message by its size.

    Args:
        sizes_bytes: (n,), above 0, ascending.
        times_s: The times in seconds by name, (n,) each, above 0.
        marks: Sizes in bytes by name, each drawn as a dotted vertical line.
        xlabel: What the numbers of bytes are.
        alt: Text alternative; written from the values when None.

    Returns:
        The picture.

    Raises:
        ValueError: A name has another number of times than there are sizes.
    """
    sizes = np.asarray(sizes_bytes, dtype=float)
    figure = new_figure(6.6, 3.4)
    axes = figure.add_subplot()
    stories = []
    for index, (name, values) in enumerate(times_s.items()):
        times = np.asarray(values, dtype=float)
        if times.shape != sizes.shape:
            raise ValueError(
                f"{name}: {times.size} times for {sizes.size} sizes; they must pair up"
            )
        look = style(index)
        axes.plot(
            sizes,
            times,
            label=name,
            color=look.colour,
            linewidth=look.width,
            linestyle=look.dashes,
            marker="o",
            markersize=5,
        )
        stories.append(
            f"{name}: {duration(times[0])} at {size(sizes[0])}, "
            f"{duration(times[-1])} at {size(sizes[-1])}."
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    for name, value in (marks or {}).items():
        axes.axvline(value, color=INK, linestyle=":", linewidth=1.2)
        top = axes.get_xaxis_transform()
        axes.text(
            value, 0.97, f"{name} ", transform=top, rotation=90, ha="right", va="top", fontsize=9
        )
        stories.append(f"Marked: {name}, {size(value)}.")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: size(value)))
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(value)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(xlabel, color=INK)
    axes.set_ylabel("time", color=INK)
    axes.grid(color=MUTED, alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, handlelength=4, loc="best")
    heading = f"Chart of time against {xlabel}, both axes logarithmic. "
    return Picture(figure, alt or heading + " ".join(stories))


def size(count_bytes: float) -> str:
    """A size in words: "16 B", "456 kB", "4.2 MB"."""
    return _with_unit(count_bytes, (("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1)))


def duration(time_s: float) -> str:
    """A time in words: "80 µs", "2.4 ms", "1.5 s"."""
    return _with_unit(time_s, (("s", 1), ("ms", 1e-3), ("µs", 1e-6)))


def _with_unit(value: float, units: tuple[tuple[str, float], ...]) -> str:
    unit, factor = next((pair for pair in units if value >= pair[1]), units[-1])
    number = value / factor
    digits = 0 if number >= 10 or number == round(number) else 1
    return f"{number:.{digits}f} {unit}"
