"""What a reader is told when a file is not what it should be."""

from __future__ import annotations

import os
from pathlib import Path


class DataError(ValueError):
    """A file or folder that cannot be used as data.

    The message always answers four questions: where, what was expected, what was found, and what
    to do about it.

    Args:
        path: the file or folder.
        expected: what a good one holds there.
        found: what this one holds.
        remedy: what the reader can do, one sentence without its full stop.
        where: the place inside the file, such as ``"line 7, field 'labels'"``.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        expected: str,
        found: str,
        remedy: str,
        where: str | None = None,
    ) -> None:
        self.path = Path(path)
        self.expected = expected
        self.found = found
        self.remedy = remedy
        self.where = where
        # All five, and not the message, so that the error survives the way from a rank (pickle).
        super().__init__(str(path), expected, found, remedy, where)

    def __str__(self) -> str:
        place = f"{self.path}, {self.where}" if self.where else f"{self.path}"
        return f"{place}: expected {self.expected}, found {self.found}. {self.remedy}."
