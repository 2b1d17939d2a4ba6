"""Text behind one line: a reader unfolds what is of interest."""

from __future__ import annotations

import html
import re

SUMMARY_CHARACTERS = 100

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")  # a terminal's colours


def fold(name: str, text: str, is_open: bool = False) -> dict[str, str]:
    """Make what Jupyter shows as one line that unfolds, and as plain text where there is no HTML.

    Args:
        name: Whose text it is: ``rank 1``.
        text: Whole lines; the line that stays in sight is its last one.
        is_open: Whether it is unfolded from the start.

    Returns:
        A bundle of text/html and text/plain.
    """
    plain = _CONTROL.sub("", text).rstrip("\n")
    lines = plain.split("\n")
    # A fixed colour would vanish in one of Jupyter's themes, so there is none.
    summary = f"{html.escape(name)}: <code>{html.escape(shorten(lines[-1]))}</code>"
    return {
        "text/html": (
            f"<details{' open' if is_open else ''}><summary>{summary} ({len(lines):,} lines)"
            f'</summary><pre style="margin: 0 0 0 1.2em">{html.escape(plain)}</pre></details>'
        ),
        "text/plain": f"[{name}]\n{plain}",
    }


def shorten(line: str, characters: int = SUMMARY_CHARACTERS) -> str:
    """Return a line, or as much of it as fits and an ellipsis."""
    return line if len(line) <= characters else f"{line[: characters - 1]}…"
