"""Pictures from a generator that training left behind."""

from __future__ import annotations

from pathlib import Path

from tutorial_lib.display.grid import sample_grid
from tutorial_lib.launcher.errors import CommandError
from tutorial_lib.training.checkpoint import load_generator
from tutorial_lib.training.samples import draw_samples


def sample(file: Path, out: Path, rows: int, cols: int, seed: int) -> str:
    """Draw rows * cols digits and save them as a PNG file.

    Args:
        file: what ``save_generator`` wrote.
        out: the picture to write.
        rows: rows of images.
        cols: columns of images.
        seed: of the noise: the same seed gives the same digits.

    Returns:
        A line that tells what was drawn and where it is.

    Raises:
        DataError: the file is no saved generator.
        CommandError: the picture cannot be written; choose another place, ending in ``.png``.
    """
    if out.suffix.lower() != ".png":
        raise CommandError(f"--out {out}: the picture is a PNG file, so let its name end in .png")
    generator, _ = load_generator(file)
    grid = sample_grid(draw_samples(generator, rows * cols, seed), rows, cols)
    try:
        grid.save(out)
    except OSError as error:
        raise CommandError(f"cannot write {out}: {error.strerror}") from error
    return f"{rows * cols} samples: {out}"
