"""Where in the reader's own code a call comes from."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from types import CodeType, FrameType

import tutorial_lib

LIBRARIES = tuple(
    {os.path.dirname(os.path.realpath(os.__file__)), os.path.dirname(tutorial_lib.__file__)}
)

names: dict[str, str] = {}  # what to call a file in which a cell's source is registered

_is_library: dict[str, bool] = {}
_cells: list[tuple[str, int]] = []  # the latest cell's file and number


def name_cell(filename: str, number: int) -> None:
    """Call a file "the cell" from now on, and the one that was called so by its number.

    Args:
        filename: In which the cell's source is registered.
        number: The cell's execution count in the notebook; 0 outside notebooks.
    """
    for earlier, count in _cells:
        names[earlier] = f"cell [{count}]" if count else "an earlier cell"
    _cells[:] = [(filename, number)]
    names[filename] = "the cell"


def call_site(frame: FrameType | None = None) -> str:
    """The line of the reader's code that is being executed.

    Args:
        frame: The innermost one of a stack; None for the caller's.

    Returns:
        For example "line 12 of the cell", "line 3 of cell [7]" for a function that was defined
        there, or "line 40 of train.py"; the innermost line when nobody but libraries is on the
        stack.
    """
    innermost = frame if frame is not None else sys._getframe(1)
    found = reader_frame(innermost)
    return in_words(found if found is not None else innermost)


def reader_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame that is not a library's; a cell's before any other."""
    first = None
    for outer in outward(frame):
        filename = outer.f_code.co_filename
        if filename in names:
            return outer
        if first is None and not is_library(filename):
            first = outer
    return first


def outward(frame: FrameType | None) -> Iterator[FrameType]:
    """A frame, its caller, and so on."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def in_words(frame: FrameType) -> str:
    """The line that a frame executes, for people."""
    filename = frame.f_code.co_filename
    return f"line {frame.f_lineno} of {names.get(filename) or os.path.basename(filename)}"


def is_library(filename: str) -> bool:
    """Whether a file belongs to Python, to an installed package, or to this library."""
    known = _is_library.get(filename)
    if known is None:
        known = filename.startswith((*LIBRARIES, "<")) or "site-packages" in filename
        _is_library[filename] = known
    return known


def expression(frame: FrameType) -> str:
    """What a frame calls at this moment, without its arguments: "d_loss.backward"; or ""."""
    source = _segment(frame.f_code, frame.f_lasti)
    return source.partition("(")[0].strip() if "(" in source else ""


def _segment(code: CodeType, instruction: int) -> str:
    """The source of an instruction, when it stands on one line."""
    import linecache

    positions = list(code.co_positions())
    if not 0 <= instruction // 2 < len(positions):
        return ""
    line, end_line, start, end = positions[instruction // 2]
    if line is None or start is None or end is None:
        return ""
    text = linecache.getline(code.co_filename, line).encode()
    return text[start : end if end_line == line else None].decode(errors="replace").strip()
