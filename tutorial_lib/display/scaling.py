"""Measured and modelled side by side: filled marks on solid lines, and hollow ones on dashed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from tutorial_lib.display.costs import duration, size
from tutorial_lib.display.palette import INK, MUTED, PAPER, style
from tutorial_lib.display.picture import Picture, new_figure

MARKS = "osD^vPX*"
PANEL_INCHES = 4.6
MOST_TICKS = 10

Points = Mapping[float, float]


@dataclass(frozen=True)
class Series:
    """One way of doing something, measured for some x and modelled for others.

    Attributes:
        name: What the legend says.
        measured: y by x, drawn with filled marks and a solid line.
        modelled: y by x, drawn with hollow marks and a dashed line.
    """

    name: str
    measured: Points = field(default_factory=dict)
    modelled: Points = field(default_factory=dict)


@dataclass(frozen=True)
class Panel:
    """One pair of logarithmic axes.

    Attributes:
        title: Above it.
        series: What is drawn.
        xlabel: What x is.
        ylabel: What y is.
        ideal: y by x of what can't be surpassed; drawn as a dotted grey line.
        x_words: Writes an x.
        y_words: Writes a y.
    """

    title: str
    series: Sequence[Series]
    xlabel: str
    ylabel: str
    ideal: Points = field(default_factory=dict)
    x_words: Callable[[float], str] = size
    y_words: Callable[[float], str] = duration


def rate(value: float) -> str:
    """A number of things a second, in three digits at most: "950", "36k", "1.2M"."""
    for unit, factor in (("M", 1e6), ("k", 1e3)):
        if value >= factor:
            number = value / factor
            return f"{number:.0f}{unit}" if number >= 10 else f"{number:.1f}{unit}"
    return f"{value:.0f}"


def count(value: float) -> str:
    """A whole number: "1,024"."""
    return f"{value:,.0f}"


def measured_and_modelled(panels: Sequence[Panel], alt: str | None = None) -> Picture:
    """Draw what was measured and what a model says, so that nobody takes one for the other.

    A name has the same colour and shape of mark in every panel.

    Args:
        panels: Side by side.
        alt: Text alternative; written from the values when None.

    Raises:
        ValueError: A panel has nothing to draw.
    """
    for panel in panels:
        if not any(series.measured or series.modelled for series in panel.series):
            raise ValueError(f"nothing to draw in {panel.title!r}: no series has a value")
    names = list(dict.fromkeys(series.name for panel in panels for series in panel.series))
    figure = new_figure(PANEL_INCHES * len(panels), 4.2)
    for place, panel in enumerate(panels, 1):
        axes = figure.add_subplot(1, len(panels), place)
        for series in panel.series:
            _draw(axes, series, names.index(series.name))
        if panel.ideal:
            axes.plot(*zip(*sorted(panel.ideal.items()), strict=True), ":", color=MUTED)
        _dress(axes, panel)
    every = [series for panel in panels for series in panel.series]
    handles = [
        Line2D(
            [], [], color=style(i).colour, marker=MARKS[i % len(MARKS)], linestyle="", label=name
        )
        for i, name in enumerate(names)
    ]
    if any(series.measured for series in every):
        handles.append(Line2D([], [], color=INK, marker="o", label="measured"))
    if any(series.modelled for series in every):
        hollow = Line2D([], [], color=INK, linestyle="--", marker="o", label="modelled")
        hollow.set_markerfacecolor(PAPER)
        handles.append(hollow)
    if any(panel.ideal for panel in panels):
        handles.append(Line2D([], [], color=MUTED, linestyle=":", label="ideal"))
    columns = min(len(handles), 1 + len(panels))
    figure.legend(
        handles=handles, loc="outside lower center", ncols=columns, frameon=False, handlelength=3
    )
    return Picture(figure, alt or " ".join(map(_story, panels)))


def share_bars(
    rows: Mapping[str, Mapping[str, float]], xlabel: str, words: Callable[[float], str]
) -> Picture:
    """Draw a bar for each row, made of parts.

    Args:
        rows: By a row's name, its parts by name, all rows with the same parts.
        xlabel: What the parts are measured in.
        words: Writes a part's size.
    """
    parts = list(next(iter(rows.values())))
    figure = new_figure(7.2, 0.9 + 0.42 * len(rows))
    axes = figure.add_subplot()
    lefts = [0.0] * len(rows)
    for index, part in enumerate(parts):
        look = style(index)
        widths = [row[part] for row in rows.values()]
        axes.barh(
            list(rows),
            widths,
            left=lefts,
            height=0.62,
            color=look.colour,
            edgecolor=PAPER,
            hatch=look.hatch,
            label=part,
        )
        lefts = [left + width for left, width in zip(lefts, widths, strict=True)]
    axes.invert_yaxis()
    axes.set_xlabel(xlabel, color=INK)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=len(parts), frameon=False)
    told = (
        f"{name}: " + ", ".join(f"{part} {words(value)}" for part, value in row.items()) + "."
        for name, row in rows.items()
    )
    return Picture(figure, f"Bars of {xlabel}. " + " ".join(told))


def _draw(axes: Axes, series: Series, index: int) -> None:
    look, mark = style(index), MARKS[index % len(MARKS)]
    if series.modelled:
        axes.plot(
            *zip(*sorted(series.modelled.items()), strict=True),
            color=look.colour,
            linestyle="--",
            linewidth=1.2,
            marker=mark,
            markersize=5.5 + 0.8 * (index % 4),  # a later mark on an earlier one leaves a rim
            markerfacecolor="none",
        )
    if series.measured:
        axes.plot(
            *zip(*sorted(series.measured.items()), strict=True),
            color=look.colour,
            linewidth=2,
            marker=mark,
            markersize=7,
        )


def _dress(axes: Axes, panel: Panel) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    xs = sorted({x for s in panel.series for x in (*s.measured, *s.modelled)})
    every = -(-len(xs) // MOST_TICKS)
    axes.xaxis.set_major_locator(FixedLocator(xs[::-1][::every]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: panel.x_words(value)))
    ys = [y for s in panel.series for found in (s.measured, s.modelled) for y in found.values()]
    ys += panel.ideal.values()
    axes.yaxis.set_major_locator(LogLocator(subs=_marks_of_a_decade(max(ys) / min(ys))))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: panel.y_words(value)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_title(panel.title, fontsize=11, color=INK)
    axes.set_xlabel(panel.xlabel, color=INK)
    axes.set_ylabel(panel.ylabel, color=INK)
    axes.tick_params(axis="x", labelsize=9)
    axes.grid(color=MUTED, alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def _marks_of_a_decade(span: float) -> tuple[float, ...]:
    """Where a logarithmic axis has ticks, so that a short one has some, and a long one not many."""
    if span > 300:
        return (1,)
    return (1, 2, 5) if span > 8 else (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8)


def _story(panel: Panel) -> str:
    def points(found: Points) -> str:
        ends = dict.fromkeys((min(found), max(found)))
        return ", ".join(f"{panel.y_words(found[x])} at {panel.x_words(x)}" for x in ends)

    told = [f"{panel.title}: chart of {panel.ylabel} against {panel.xlabel}, logarithmic."]
    for series in panel.series:
        for how, found in (("measured", series.measured), ("modelled", series.modelled)):
            if found:
                told.append(f"{series.name}, {how}: {points(found)}.")
    return " ".join(told)
