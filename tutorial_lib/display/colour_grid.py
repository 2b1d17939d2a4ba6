"""Grids of small pictures in colour."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from tutorial_lib.display.palette import INK
from tutorial_lib.display.picture import Picture, new_figure

INCHES = 0.85  # of one picture's side
CAPTION_INCHES = 0.22


def colour_grid(
    images: ArrayLike, columns: int, alt: str, captions: Sequence[str] | None = None
) -> Picture:
    """Draw colour pictures row by row.

    Args:
        images: (n, 3, height, width), n ≥ 1: bytes, or numbers of any range, each picture of
            which is then stretched to the whole range from dark to bright.
        columns: pictures in a row.
        alt: the text alternative: what there is to see.
        captions: a line under each picture.

    Returns:
        The picture.

    Raises:
        ValueError: the images have another shape, or their captions are not as many.
    """
    stack = np.asarray(images)
    if stack.ndim != 4 or stack.shape[1] != 3 or not len(stack):
        raise ValueError(f"images of shape {stack.shape}: expected (n, 3, height, width), n > 0")
    if captions is not None and len(captions) != len(stack):
        raise ValueError(f"{len(stack)} images take as many captions, not {len(captions)}")
    if stack.dtype != np.uint8:
        low = stack.min(axis=(1, 2, 3), keepdims=True)
        high = stack.max(axis=(1, 2, 3), keepdims=True)
        stack = (stack - low) / np.maximum(high - low, 1e-12)
    rows = -(-len(stack) // columns)
    height = rows * (INCHES + CAPTION_INCHES * (captions is not None))
    figure = new_figure(columns * INCHES, height)
    grid = figure.subplots(rows, columns, squeeze=False).flat
    for index, axes in enumerate(grid):
        axes.set_axis_off()
        if index < len(stack):
            axes.imshow(stack[index].transpose(1, 2, 0), interpolation="nearest")
            if captions is not None:
                axes.set_title(captions[index], fontsize=8, color=INK, y=-0.3)
    return Picture(figure, alt)
