"""A picture: a matplotlib figure together with the words that stand for it."""

from __future__ import annotations

import base64
import html
import io
import os
from collections.abc import Container
from pathlib import Path

from matplotlib.figure import Figure

from tutorial_lib.data.atomic import atomic_write
from tutorial_lib.display.palette import PAPER

SCREEN_DPI = 96
DRAWN_DPI = 144


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure on opaque white paper, readable in a dark theme too.

    It belongs to no window and to no global state, so nothing needs closing.

    Args:
        width: inches; 96 CSS pixels each on the page.
        height: inches.
    """
    return Figure(figsize=(width, height), facecolor=PAPER, layout="constrained")


class Picture:
    """A figure with a text alternative, shown by Jupyter as one image.

    Args:
        figure: what to show.
        alt: what a reader who cannot see the figure should know: what it is, and what it shows.

    Raises:
        ValueError: the alternative text is blank; describe the figure.
    """

    def __init__(self, figure: Figure, alt: str) -> None:
        if not alt.strip():
            raise ValueError("a picture needs a text alternative: say what it shows")
        self.figure = figure
        self.alt = " ".join(alt.split())
        self._png: bytes | None = None

    def png(self) -> bytes:
        """Return the figure as PNG bytes, drawn at the first call."""
        if self._png is None:
            self._png = self._draw()
        return self._png

    def _draw(self) -> bytes:
        if all(axes.get_subplotspec() is None for axes in self.figure.axes):
            self.figure.set_layout_engine("none")  # placed by hand: it would only warn
        buffer = io.BytesIO()
        self.figure.savefig(
            buffer,
            format="png",
            dpi=DRAWN_DPI,
            facecolor=PAPER,
            metadata={"Software": None, "Description": self.alt},
        )
        return buffer.getvalue()

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the figure as a PNG file, which is complete as soon as it exists.

        Args:
            path: where to; missing folders are made.

        Returns:
            The path written.
        """
        content = self.png()
        with atomic_write(path) as file:
            file.write(content)
        return Path(path)

    def html(self) -> str:
        """Return an ``<img>`` element that holds the picture and its alternative."""
        width = round(self.figure.get_figwidth() * SCREEN_DPI)
        content = base64.b64encode(self.png()).decode("ascii")
        return (
            f'<img alt="{html.escape(self.alt)}" width="{width}" style="max-width: 100%" '
            f'src="data:image/png;base64,{content}">'
        )

    def _repr_mimebundle_(
        self, include: Container[str] | None = None, exclude: Container[str] | None = None
    ) -> dict[str, str]:
        return {"text/html": self.html(), "text/plain": self.alt}

    def __repr__(self) -> str:
        return f"Picture({self.alt!r})"
