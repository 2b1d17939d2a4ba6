"""Small grey images laid out in one array: numpy only, so that a live view starts quickly."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

GAP = 2


def as_stack(images: ArrayLike) -> NDArray[np.float32]:
    """Return images as (n, height, width), flat ones made square.

    Raises:
        ValueError: the shape is neither (n, height, width) nor (n, side*side).
    """
    stack = np.asarray(images, dtype=np.float32)
    if stack.ndim == 2 and math.isqrt(stack.shape[1]) ** 2 == stack.shape[1]:
        stack = stack.reshape(len(stack), *2 * [math.isqrt(stack.shape[1])])
    if stack.ndim != 3 or not len(stack):
        raise ValueError(
            f"images of shape {stack.shape}: expected (n, height, width) or (n, side * side), n > 0"
        )
    return stack


def tile(
    stack: NDArray[np.float32], rows: int, cols: int, vmin: float, vmax: float, row_gap: int = GAP
) -> NDArray[np.float32]:
    """Lay images out row by row in one array, white gaps between them.

    Args:
        stack: (n, height, width), n at most rows * cols.
        rows: number of rows.
        cols: number of columns.
        vmin: the value of black.
        vmax: the value of white.
        row_gap: white pixels between two rows.

    Returns:
        The composed image, brightness 0 to 1; places without an image are white.

    Raises:
        ValueError: there are more images than places; pass fewer, or ask for more rows.
    """
    n, height, width = stack.shape
    if n > rows * cols:
        raise ValueError(
            f"{n} images do not fit in {rows} rows of {cols}: pass images[:{rows * cols}]"
        )
    cell = (height + row_gap, width + GAP)
    places = np.ones((rows * cols, *cell), np.float32)
    places[:n, :height, :width] = np.clip((stack - vmin) / (vmax - vmin), 0.0, 1.0)
    whole = places.reshape(rows, cols, *cell).swapaxes(1, 2).reshape(rows * cell[0], cols * cell[1])
    return whole[:-row_gap, :-GAP]
