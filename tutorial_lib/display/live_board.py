"""A training under way, on one board: a bar, a table of the ranks, losses, and samples.

The ranks send small reports; the board is drawn where the notebook's kernel is, as text and one
picture in SVG, which costs a few milliseconds: no rank waits for it.
"""

from __future__ import annotations

import base64
import html
import io
import time
import zlib
from typing import Any

import numpy as np

from tutorial_lib.display.palette import INK, MUTED, PAPER, style
from tutorial_lib.display.text_table import text_table
from tutorial_lib.display.tiling import tile

MIME = "application/vnd.gan-tutorial.report+json"

SHORTEST_S = 0.25  # between two drawings
SHARE = 0.02  # of the time that drawing may take, so that it comes less often on a busy machine
BAR_CHARACTERS = 30
CURVE_POINTS = 300
WIDTH, HEIGHT = 760, 260
LEFT, RIGHT, TOP, BOTTOM = 330, 740, 30, 220  # of the curves' axes
SIDE = 240  # of the samples
HEADINGS = ("rank", "host", "device", "threads", "step", "samples/s", "memory", "communication")

Report = dict[str, Any]


def pack_images(images: Any) -> str:
    """Make text of images.

    Args:
        images: (n, height, width), from -1, black, to 1, white.
    """
    pixels = np.clip((np.asarray(images) + 1) * 127.5, 0, 255).astype(np.uint8)
    n, height, width = pixels.shape
    packed = base64.b64encode(zlib.compress(pixels.tobytes(), 1)).decode("ascii")
    return f"{n} {height} {width} {packed}"


class LiveBoard:
    """What the reports of some ranks say.

    Args:
        first: The rank whose progress is shown, and whose losses and samples.
    """

    def __init__(self, first: int = 0) -> None:
        self.first = first
        self.reports: dict[int, Report] = {}
        self.losses: dict[str, tuple[list[int], list[float]]] = {}
        self.images = ""
        self._is_new = False
        self._due = 0.0

    def take(self, report: Report) -> None:
        """Take in what a rank says.

        Args:
            report: Its "rank", "step", "steps", "seconds", "samples", "host", "device",
                "threads", "memory_bytes", "communication" as a share or None, "is_over"; of one
                rank also "losses", ``{name: [[step, ...], [value, ...]]}``, those since the last
                report, and "images".
        """
        rank = report["rank"]
        self.reports[rank] = report
        if rank == self.first:
            for name, (steps, values) in report.get("losses", {}).items():
                all_steps, all_values = self.losses.setdefault(name, ([], []))
                all_steps += steps
                all_values += values
            self.images = report.get("images") or self.images
        self._is_new = True

    def is_due(self) -> bool:
        """Whether there is something new to draw, and drawing it would not take too much time."""
        return self._is_new and self.first in self.reports and time.monotonic() >= self._due

    @property
    def is_over(self) -> bool:
        """Whether the first rank has ended."""
        return bool(self.reports.get(self.first, {}).get("is_over"))

    def bundle(self) -> dict[str, str]:
        """Draw: text/html with a picture, and text/plain."""
        begun = time.monotonic()
        self._is_new = False
        text = self.text()
        shown = {"text/plain": text, "text/html": f"<pre>{html.escape(text)}</pre>"}
        if self.losses or self.images:
            picture = base64.b64encode(self.svg().encode()).decode("ascii")
            shown["text/html"] += (
                f'<img alt="{html.escape(self.alt())}" width="{WIDTH}" style="max-width: 100%" '
                f'src="data:image/svg+xml;base64,{picture}">'
            )
        now = time.monotonic()
        self._due = now + max(SHORTEST_S, (now - begun) / SHARE)
        return shown

    def text(self) -> str:
        """The bar and the table."""
        rows = [_row(self.reports[rank]) for rank in sorted(self.reports)]
        return f"{self.bar()}\n{text_table(HEADINGS, rows)}"

    def bar(self) -> str:
        """One line: how far the first rank is, and between which steps the others."""
        mine = self.reports[self.first]
        step, steps, seconds = mine["step"], mine["steps"], mine["seconds"]
        full = round(BAR_CHARACTERS * step / steps) if steps else BAR_CHARACTERS
        words = [f"{'━' * full}{'┄' * (BAR_CHARACTERS - full)} step {step:,} of {steps:,}"]
        others = [report["step"] for rank, report in self.reports.items() if rank != self.first]
        if others and not mine["is_over"]:
            low, high = min(others), max(others)
            words.append(f"other ranks at {low:,}" + (f" to {high:,}" if high > low else ""))
        if seconds > 0 and mine["samples"]:
            words.append(f"{mine['samples'] / seconds:,.0f} samples/s")
        if mine["is_over"]:
            words.append(f"{_duration(seconds)}{'' if step == steps else ', stopped'}")
        elif step:
            words.append(f"{_duration(seconds * (steps - step) / step)} left")
        return ", ".join(words)

    def alt(self) -> str:
        """What the picture shows, in words."""
        last = ", ".join(f"{name} {values[-1]:.3f}" for name, (_, values) in self.losses.items())
        mine = self.reports[self.first]
        words = f"Losses up to step {mine['step']}: {last}." if last else ""
        if self.images:
            words = f"{self.images.split()[0]} samples of the generator. {words}"
        return words.strip()

    def svg(self) -> str:
        """The samples and the losses in one picture, on white paper in a dark theme too."""
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            f'font-family="sans-serif" font-size="12" fill="{INK}">'
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="{PAPER}"/>'
        ]
        if self.images:
            parts.append(
                f'<image x="10" y="10" width="{SIDE}" height="{SIDE}" '
                'style="image-rendering: pixelated" '
                f'href="data:image/png;base64,{_png(self.images)}"/>'
            )
        if self.losses:
            parts += _curves(self.losses)
        return "".join([*parts, "</svg>"])


def _row(report: Report) -> tuple[str, ...]:
    share = report["communication"]
    speed = report["samples"] / report["seconds"] if report["seconds"] > 0 else 0.0
    return (
        str(report["rank"]),
        report["host"],
        report["device"],
        str(report["threads"]),
        f"{report['step']:,}",
        f"{speed / report['ranks']:,.0f}",
        f"{report['memory_bytes'] / 2**20:,.0f} MiB",
        "not known" if share is None else f"{share:.0%}",
    )


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _png(packed: str) -> str:
    """Images in rows and columns as a PNG file in base64."""
    from PIL import Image

    n, height, width, data = packed.split(" ")
    pixels = np.frombuffer(zlib.decompress(base64.b64decode(data)), np.uint8)
    stack = pixels.reshape(int(n), int(height), int(width))
    columns = int(np.ceil(np.sqrt(len(stack))))
    whole = tile(stack.astype(np.float32), -(-len(stack) // columns), columns, 0, 255)
    file = io.BytesIO()
    Image.fromarray((255 * whole).astype(np.uint8)).save(file, "PNG", compress_level=1)
    return base64.b64encode(file.getvalue()).decode("ascii")


def _curves(losses: dict[str, tuple[list[int], list[float]]]) -> list[str]:
    """Axes, a line per name, and its name, all by hand: no drawing library is as quick."""
    thin = {name: _thin(steps, values) for name, (steps, values) in losses.items()}
    every = np.concatenate([values for _, values in thin.values()])
    every = every[np.isfinite(every)]
    low, high = (float(every.min()), float(every.max())) if len(every) else (0.0, 1.0)
    last = max(float(steps[-1]) for steps, _ in thin.values())
    x = (RIGHT - LEFT) / max(last - 1, 1)
    y = (BOTTOM - TOP) / ((high - low) or 1.0)
    parts = [
        f'<path d="M{LEFT} {TOP}V{BOTTOM}H{RIGHT}" fill="none" stroke="{MUTED}"/>'
        f'<text x="{LEFT - 6}" y="{BOTTOM}" text-anchor="end">{low:.2f}</text>'
        f'<text x="{LEFT - 6}" y="{TOP + 8}" text-anchor="end">{high:.2f}</text>'
        f'<text x="{LEFT}" y="{BOTTOM + 18}">1</text>'
        f'<text x="{RIGHT}" y="{BOTTOM + 18}" text-anchor="end">{last:,.0f}</text>'
        f'<text x="{(LEFT + RIGHT) / 2}" y="{BOTTOM + 18}" text-anchor="middle">step</text>'
    ]
    for index, (name, (steps, values)) in enumerate(thin.items()):
        look = style(index)
        points = " ".join(
            f"{LEFT + x * (step - 1):.1f},{BOTTOM - y * (value - low):.1f}"
            for step, value in zip(steps, values, strict=True)
            if np.isfinite(value)
        )
        dashes = ",".join(f"{2 * dash:g}" for dash in look.dashes[1]) or "none"
        line = (
            f'fill="none" stroke="{look.colour}" stroke-width="{look.width:g}" '
            f'stroke-dasharray="{dashes}"'
        )
        left = LEFT + 190 * index
        parts.append(
            f'<polyline {line} points="{points}"/><path {line} d="M{left} 14h36"/>'
            f'<text x="{left + 42}" y="18">{html.escape(name)}: {values[-1]:.3f}</text>'
        )
    return parts


def _thin(steps: list[int], values: list[float]) -> tuple[Any, Any]:
    """Means of equal stretches, when there are more values than can be told apart."""
    x, y = np.asarray(steps, np.float64), np.asarray(values, np.float64)
    size = -(-len(x) // CURVE_POINTS)
    if size <= 1:
        return x, y
    starts = np.arange(0, len(x), size)
    counts = np.diff(np.append(starts, len(x)))
    return np.add.reduceat(x, starts) / counts, np.add.reduceat(y, starts) / counts
