"""Grids of small grey images."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from tutorial_lib.display.palette import INK
from tutorial_lib.display.picture import Picture, new_figure
from tutorial_lib.display.tiling import GAP, as_stack, tile

CAPTION_GAP = 9
PIXELS_PER_INCH = 44


def sample_grid(
    images: ArrayLike,
    rows: int = 6,
    cols: int = 6,
    vmin: float = -1.0,
    vmax: float = 1.0,
    alt: str | None = None,
    captions: Sequence[str] | None = None,
    zoom: float = 1.0,
) -> Picture:
    """Draw images in rows and columns, black at ``vmin`` and white at ``vmax``.

    Args:
        images: (n, height, width), or (n, side*side) for square images; n at most rows * cols.
        rows: number of rows.
        cols: number of columns.
        vmin: the value of black. The default suits tanh, whose negative half a lower end of 0
            would clip.
        vmax: the value of white.
        alt: the text alternative; by default it tells the size and the mean brightness.
        captions: one line under each image.
        zoom: how much larger than usual to show it, where 1 is 2.2 screen pixels for each pixel.

    Returns:
        The picture.

    Raises:
        ValueError: the images have another shape, or are more than there are places, or their
            captions are not as many.

    **Source:** the 6x6 grid at the end of CNTK 206A.
    """
    stack = as_stack(images)
    n, height, width = stack.shape
    gap = max(GAP, round(CAPTION_GAP / zoom)) if captions else GAP
    whole = tile(stack, rows, cols, vmin, vmax, gap)
    if captions:
        whole = np.pad(whole, ((0, gap), (0, 0)), constant_values=1.0)
    height_inches, width_inches = (zoom * side / PIXELS_PER_INCH for side in whole.shape)
    figure = new_figure(width_inches, height_inches)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.imshow(whole, cmap="gray", vmin=0, vmax=1, interpolation="nearest", aspect="auto")
    axes.set_axis_off()
    for index, (_, caption) in enumerate(zip(stack, captions or [""] * n, strict=True)):
        x = index % cols * (width + GAP) + width / 2
        y = index // cols * (height + gap) + height + gap / 2
        axes.text(x, y, caption, ha="center", va="center", fontsize=9, color=INK)
    if alt is None:
        brightness = float(np.mean((np.clip(stack, vmin, vmax) - vmin) / (vmax - vmin)))
        alt = (
            f"{n} grey images of {height} by {width} pixels in {rows} rows of {cols}; "
            f"mean brightness {brightness:.2f}, where 0 is black and 1 is white"
        )
    return Picture(figure, alt)
