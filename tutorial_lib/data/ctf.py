"""CNTK's text format (CTF), in which notebook 103A of its tutorials saves MNIST."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from tutorial_lib.data.atomic import atomic_write
from tutorial_lib.data.cache import read_columns
from tutorial_lib.data.ctf_line import NUM_CLASSES, NUM_PIXELS, Line
from tutorial_lib.data.errors import DataError
from tutorial_lib.data.files import read_pieces

BLOCK_BYTES = 1 << 18  # a block and what is computed of it stay in the processor's cache
BLOCK_ROWS = 1 << 10

LABELS_TAG = np.frombuffer(b"|labels ", np.uint8)
FEATURES_TAG = np.frombuffer(b"|features ", np.uint8)
# Bytes of a line that are neither digits nor white space; each tag ends in one space.
NUM_TAG_BYTES = len(LABELS_TAG) + len(FEATURES_TAG) - 2
NUM_VALUES = NUM_CLASSES + NUM_PIXELS

Bytes = npt.NDArray[np.uint8]


def read_ctf(path: str | os.PathLike[str]) -> tuple[Bytes, Bytes]:
    """Read a file of lines ``|labels {10 one-hot} |features {784 pixels}``.

    Blocks of lines in exactly this layout are parsed all at once. What CNTK's reader takes as
    well is taken line by line: the fields in the other order, tabs and further spaces, a sequence
    number in front, comments (``|#``), fields of other names, blank lines. Windows line ends and
    a missing last newline are fine.

    Args:
        path: the file, gzip-compressed or not.

    Returns:
        ``(images, labels)``: uint8 (n, 784), pixels 0 to 255, and uint8 (n,), 0 to 9. A large file
        is parsed once for all ranks and all later runs, see ``cache.read_columns``.

    Raises:
        DataError: the file is missing, unreadable or empty, or a line has a field too few, a
            wrong count of values, or a value that is no number or out of its range. The message
            names line and field; repair or regenerate the file.

    **Source:** CNTK's ``CTFDeserializer`` with dense streams ``labels`` and ``features``. Unlike
    it, a field with too few values is an error, and is not filled up with zeros.
    """
    images, labels = read_columns([path], lambda: parse_ctf(path))
    return images, labels


def parse_ctf(path: str | os.PathLike[str]) -> Iterator[tuple[Bytes, Bytes]]:
    """Yield what ``read_ctf`` returns, block by block, and with its errors."""
    first_line, is_empty = 1, True
    for block in _blocks(read_pieces(path, BLOCK_BYTES)):
        parsed = _parse_block(np.frombuffer(block, np.uint8))
        if parsed is None:
            parsed = _parse_lines(block, path, first_line)
        yield parsed
        first_line += block.count(b"\n")
        is_empty = is_empty and not len(parsed[1])
    if is_empty:
        raise DataError(path, "samples", "only blank lines or comments", "Regenerate the file")


def _blocks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Cut a file anew into pieces of whole lines, each ended by a newline."""
    begun: list[bytes] = []
    for piece in pieces:
        lines, newline, rest = piece.rpartition(b"\n")
        if newline:
            yield b"".join((*begun, lines, newline))
            begun = []
        begun.append(rest)
    if last := b"".join(begun):  # without its newline
        yield last + b"\n"


def _parse_block(text: Bytes) -> tuple[Bytes, Bytes] | None:
    """Parse lines of the exact layout, or return None if anything at all is not as it should be.

    The value of a number is computed at every byte, as if it ended there, and picked where one
    does end: a dozen passes over a block in cache instead of a loop over 794 numbers a line.
    """
    newlines = np.flatnonzero(text == ord("\n"))
    pipes = np.flatnonzero(text == ord("|"))
    num_lines = len(newlines)
    if len(pipes) != 2 * num_lines:
        return None
    labels_at, features_at = pipes[0::2], pipes[1::2]
    digits = text - ord("0")  # other characters wrap to 10 and more
    is_digit = digits < 10
    ends = np.flatnonzero(is_digit[:-1] & ~is_digit[1:])  # the text ends in a newline
    is_space = (text == ord(" ")) | (text - ord("\t") < 5)  # \t \n \v \f \r, as bytes.split has it
    num_other = len(text) - np.count_nonzero(is_digit) - np.count_nonzero(is_space)
    if len(ends) != NUM_VALUES * num_lines or num_other != NUM_TAG_BYTES * num_lines:
        return None
    table = ends.reshape(num_lines, NUM_VALUES)
    fields_are_in_place = (
        (np.append(-1, newlines[:-1]) < labels_at).all()
        and _all_read(text, labels_at, LABELS_TAG)
        and _all_read(text, features_at, FEATURES_TAG)
        and (labels_at < table[:, 0]).all()
        and (table[:, NUM_CLASSES - 1] < features_at).all()
        and (features_at < table[:, NUM_CLASSES]).all()
        and (table[:, -1] < newlines).all()
    )
    if not fields_are_in_place:
        return None
    values = _numbers_ending_everywhere(digits, is_digit)
    if values is None:
        return None
    values = values[table]
    one_hot = values[:, :NUM_CLASSES]
    if (one_hot.max(axis=1) != 1).any() or (one_hot.sum(axis=1, dtype=np.uint16) != 1).any():
        return None
    return values[:, NUM_CLASSES:], one_hot.argmax(axis=1).astype(np.uint8)


def _all_read(text: Bytes, places: npt.NDArray[np.int64], tag: Bytes) -> bool:
    """Tell whether ``tag`` stands at all ``places``; each has that many bytes after it."""
    if len(places) and places[-1] + len(tag) > len(text):
        return False
    return all((text[places + offset] == byte).all() for offset, byte in enumerate(tag))


def _numbers_ending_everywhere(digits: Bytes, is_digit: npt.NDArray[np.bool_]) -> Bytes | None:
    """Return at each byte the number of up to three digits that ends there.

    None if any number is over 255 or has more than three digits.
    """
    ones = digits * is_digit
    tens = np.zeros_like(ones)
    np.multiply(ones[:-1], 10, out=tens[1:])
    run_of_2 = is_digit[1:] & is_digit[:-1]
    run_of_3 = run_of_2[1:] & run_of_2[:-1]
    hundreds = ones[:-2] * run_of_3
    below_100 = ones + tens
    has_long_run = (run_of_3[1:] & run_of_3[:-1]).any()
    is_over_255 = (hundreds > 2).any() or ((hundreds == 2) & (below_100[2:] > 55)).any()
    if has_long_run or is_over_255:
        return None
    below_100[2:] += hundreds * np.uint8(100)
    return below_100


def _parse_lines(
    block: bytes, path: str | os.PathLike[str], first_line: int
) -> tuple[Bytes, Bytes]:
    """Parse lines one by one: slower, more liberal, and exact about what is wrong."""
    texts = enumerate(block.split(b"\n"), start=first_line)
    samples = [sample for number, text in texts if (sample := Line(path, number).parse(text))]
    images = np.array([image for image, _ in samples], np.uint8).reshape(-1, NUM_PIXELS)
    return images, np.array([label for _, label in samples], np.uint8)


def write_ctf(
    path: str | os.PathLike[str], images: npt.NDArray[np.uint8], labels: npt.NDArray[np.integer]
) -> None:
    """Write images and labels byte for byte as CNTK's notebook 103A does, whole or not at all.

    Args:
        path: the file to make or replace.
        images: uint8 (n, 784) or (n, 28, 28).
        labels: integers (n,), 0 to 9.

    Raises:
        ValueError: another type, shape or range; convert the arrays.
    """
    images = images.reshape(len(images), -1)
    if images.dtype != np.uint8 or images.shape != (len(labels), NUM_PIXELS):
        raise ValueError(
            f"expected {len(labels)} images, one a label, of {NUM_PIXELS} uint8 pixels; "
            f"got {images.dtype} of shape {images.shape}"
        )
    if len(labels) and not (labels.min() >= 0 and labels.max() < NUM_CLASSES):
        raise ValueError(f"labels are 0 to {NUM_CLASSES - 1}, got {labels.min()} to {labels.max()}")
    heads = _heads()
    pixels = _pixels()
    with atomic_write(path) as file:
        for start in range(0, len(images), BLOCK_ROWS):
            rows = slice(start, start + BLOCK_ROWS)
            text = pixels[images[rows]].reshape(-1, NUM_PIXELS * pixels.shape[1])
            text[:, -1] = ord("\n")  # in place of the last space
            padded = np.concatenate([heads[labels[rows]], text], axis=1)
            file.write(padded[padded != 0].tobytes())


def _heads() -> Bytes:
    """Return for each label what its line begins with, as bytes (10, 38)."""
    one_hot = [" ".join(map(str, row)) for row in np.eye(NUM_CLASSES, dtype=int)]
    return np.array([list(f"|labels {row} |features ".encode()) for row in one_hot], np.uint8)


def _pixels() -> Bytes:
    """Return for each pixel value its text and a space, as bytes (256, 4) padded with zeros."""
    return np.array([list(f"{value} ".encode().rjust(4, b"\0")) for value in range(256)], np.uint8)
