"""One line of CNTK's text format, read exactly."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import NoReturn

from tutorial_lib.data.errors import DataError

NUM_CLASSES = 10
NUM_PIXELS = 784

# Most values are one of these; others, such as 007, are read digit by digit.
USUAL_VALUES = {str(value).encode(): value for value in range(256)}
MOST_DIGITS = 20


@dataclass(frozen=True)
class Field:
    """What a field of a line must hold."""

    size: int
    limit: int
    value: str


FIELDS = {
    "labels": Field(NUM_CLASSES, 1, "0 or 1"),
    "features": Field(NUM_PIXELS, 255, "a pixel, a whole number from 0 to 255"),
}


@dataclass(frozen=True)
class Line:
    """A line's place, for errors.

    Attributes:
        path: the file.
        number: counted from 1.
    """

    path: str | os.PathLike[str]
    number: int

    def parse(self, text: bytes) -> tuple[list[int], int] | None:
        """Parse the line, in any layout that CNTK's reader takes for MNIST.

        Args:
            text: the line, with or without its line end.

        Returns:
            ``(pixels, label)``, or None for a line that is blank or only a comment.

        Raises:
            DataError: anything wrong with it; the message names line, field and value.
        """
        head, *parts = text.strip().split(b"|")
        if head.strip() and not head.strip().isdigit():
            self.fail("a field that begins with '|'", quoted(head))
        parts = [part for part in parts if not part.startswith(b"#")]  # a comment, to the next '|'
        if not parts and not head:
            return None
        values: dict[str, list[int]] = {}
        for part in parts:
            if not part or part[:1].isspace():
                self.fail("a field's name right after '|'", "none")
            first, *rest = part.split()
            name = first.decode("ascii", "backslashreplace")
            if name in values:
                self.fail("the field once", "it twice", f"field '{name}'")
            if name in FIELDS:
                values[name] = self._values(rest, name)
        for name in FIELDS:
            if name not in values:
                self.fail("the field", "none of this name", f"field '{name}'")
        if (ones := sum(values["labels"])) != 1:
            self.fail("one 1 among zeros", f"{ones} ones", "field 'labels'")
        return values["features"], values["labels"].index(1)

    def _values(self, texts: list[bytes], name: str) -> list[int]:
        field = FIELDS[name]
        if len(texts) != field.size:
            self.fail(f"{field.size} values", f"{len(texts)}", f"field '{name}'")
        values = [USUAL_VALUES.get(text, 256) for text in texts]
        if max(values) > field.limit:
            values = [self._value(text, place, name) for place, text in enumerate(texts, start=1)]
        return values

    def _value(self, text: bytes, place: int, name: str) -> int:
        value = int(text) if text.isdigit() and len(text) <= MOST_DIGITS else None
        if value is None or value > FIELDS[name].limit:
            self.fail(FIELDS[name].value, quoted(text), f"field '{name}', value {place}")
        return value

    def fail(self, expected: str, found: str, inside: str | None = None) -> NoReturn:
        """Raise the error about this line, or about a place inside it."""
        remedy = "Correct the line, or write the file anew with `gan-tutorial data install`"
        where = f"line {self.number}, {inside}" if inside else f"line {self.number}"
        raise DataError(self.path, expected, found, remedy, where)


def quoted(text: bytes) -> str:
    """Return the beginning of a text as an error shows it."""
    shown = text[:MOST_DIGITS].decode("ascii", "backslashreplace")
    return f"'{shown}{'…' if len(text) > MOST_DIGITS else ''}'"
