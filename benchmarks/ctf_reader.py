"""How fast CNTK's text format is read on one core.

Target: 100 MB of text a second.

python benchmarks/ctf_reader.py
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
from measuring import print_rates, side_by_side

from tutorial_lib.data.columns import join_columns
from tutorial_lib.data.ctf import parse_ctf
from tutorial_lib.data.ctf_line import Line
from tutorial_lib.data.folder import CTF_NAMES
from tutorial_lib.data.install import install

Arrays = tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]


def read_by_parse_ctf(path: Path) -> Arrays:
    """What read_ctf does where nothing is in the cache."""
    images, labels = join_columns(parse_ctf(path))
    return images, labels


def read_by_fromstring(path: Path) -> Arrays:
    """The usual quick way: NumPy parses each line's numbers."""
    images, labels = [], []
    with open(path, encoding="ascii") as file:
        for line in file:
            _, one_hot, pixels = line.split("|")
            labels.append(np.fromstring(one_hot[7:], np.int64, sep=" ").argmax())
            images.append(np.fromstring(pixels[9:], np.int64, sep=" "))
    return np.array(images, np.uint8), np.array(labels, np.uint8)


def read_by_int(path: Path) -> Arrays:
    """The plain way: split each line and convert each number."""
    images, labels = [], []
    with open(path, encoding="ascii") as file:
        for line in file:
            _, one_hot, pixels = line.split("|")
            labels.append([int(text) for text in one_hot.split()[1:]].index(1))
            images.append([int(text) for text in pixels.split()[1:]])
    return np.array(images, np.uint8), np.array(labels, np.uint8)


def read_by_exact_lines(path: Path) -> Arrays:
    """What parse_ctf falls back to for unusual layouts and to locate errors."""
    lines = enumerate(path.read_bytes().splitlines(), start=1)
    samples = [sample for number, text in lines if (sample := Line(path, number).parse(text))]
    return (
        np.array([image for image, _ in samples], np.uint8),
        np.array([label for _, label in samples], np.uint8),
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        train, test = install("ctf", folder, report=lambda _: None)
        readers = {
            "parse_ctf": read_by_parse_ctf,
            "exact lines": read_by_exact_lines,
            "np.fromstring": read_by_fromstring,
            "split and int": read_by_int,
        }
        expected = read_by_parse_ctf(test)
        for name, read in readers.items():
            if not all(map(np.array_equal, read(test), expected)):
                sys.exit(f"{name} reads something else")
        print(f"{CTF_NAMES[1]}, {os.path.getsize(test) / 1e6:.1f} MB, per second of one core")
        alternatives = {name: lambda read=read: read(test) for name, read in readers.items()}
        times = side_by_side(alternatives, clock=time.process_time)
        print_rates(times, os.path.getsize(test) / 1e6, "MB")
        print(f"\n{CTF_NAMES[0]}, {os.path.getsize(train) / 1e6:.1f} MB, per second of one core")
        times = side_by_side(
            {"parse_ctf": lambda: read_by_parse_ctf(train)}, clock=time.process_time
        )
        print_rates(times, os.path.getsize(train) / 1e6, "MB")


if __name__ == "__main__":
    main()
