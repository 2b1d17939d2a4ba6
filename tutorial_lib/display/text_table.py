"""Tables of text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def text_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Align columns.

    Args:
        headings: Of the columns.
        rows: Cells, as many in each as there are headings.

    Returns:
        Lines, the headings first, without blanks at their ends.
    """
    table = [headings, *rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ("  ".join(map(str.ljust, line, widths)).rstrip() for line in table)
    return "\n".join(lines)
