from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from tutorial_lib.data import ctf
from tutorial_lib.data.ctf import read_ctf, write_ctf
from tutorial_lib.data.errors import DataError

Arrays = tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]


def text_of(images: npt.NDArray[np.uint8], labels: npt.NDArray[np.uint8]) -> bytes:
    """Return the file as notebook 103A writes it, in the plainest way."""
    lines = []
    for image, label in zip(images.reshape(len(images), -1), labels, strict=True):
        one_hot = " ".join("1" if label == k else "0" for k in range(10))
        lines.append(f"|labels {one_hot} |features {' '.join(map(str, image))}\n")
    return "".join(lines).encode()


@pytest.fixture
def digits(random_digits: Callable[[int], Arrays]) -> Arrays:
    return random_digits(300)  # 0.7 MB of text, several blocks


@pytest.fixture
def no_line_by_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a test fail that leaves the fast way."""

    def fail(*_: object) -> None:
        pytest.fail("parsed line by line")

    monkeypatch.setattr(ctf, "_parse_lines", fail)


def write_and_read(tmp_path: Path, content: bytes) -> Arrays:
    path = tmp_path / "Train-28x28_cntk_text.txt"
    path.write_bytes(content)
    return read_ctf(path)


def assert_equal(read: Arrays, digits: Arrays) -> None:
    images, labels = digits
    assert read[0].dtype == read[1].dtype == np.uint8
    assert np.array_equal(read[0], images.reshape(-1, 784))
    assert np.array_equal(read[1], labels)


def test_written_bytes_are_those_of_103a(tmp_path: Path, digits: Arrays) -> None:
    write_ctf(tmp_path / "file", *digits)
    assert (tmp_path / "file").read_bytes() == text_of(*digits)


@pytest.mark.usefixtures("no_line_by_line")
@pytest.mark.parametrize("n", [1, 2, 300])
def test_what_is_written_is_read(
    tmp_path: Path, random_digits: Callable[[int], Arrays], n: int
) -> None:
    digits = random_digits(n)
    assert_equal(write_and_read(tmp_path, text_of(*digits)), digits)


@pytest.mark.usefixtures("no_line_by_line")
@pytest.mark.parametrize("value", [0, 9, 10, 99, 100, 199, 200, 249, 250, 255])
def test_every_kind_of_number_is_read_next_to_every_other(tmp_path: Path, value: int) -> None:
    image = np.full((1, 784), value, np.uint8)
    image[0, ::3] = np.arange(262) % 256
    digits = (image, np.array([3], np.uint8))
    assert_equal(write_and_read(tmp_path, text_of(*digits)), digits)


@pytest.mark.usefixtures("no_line_by_line")
@pytest.mark.parametrize("block_bytes", [1, 3000, 5000, 1 << 30])
def test_size_of_blocks_does_not_matter(
    tmp_path: Path, digits: Arrays, monkeypatch: pytest.MonkeyPatch, block_bytes: int
) -> None:
    monkeypatch.setattr(ctf, "BLOCK_BYTES", block_bytes)
    assert_equal(write_and_read(tmp_path, text_of(*digits)), digits)


FINE_AND_FAST: dict[str, Callable[[bytes], bytes]] = {
    "Windows line ends": lambda text: text.replace(b"\n", b"\r\n"),
    "no last newline": lambda text: text[:-1],
    "Windows line ends and no last newline": lambda text: text.replace(b"\n", b"\r\n")[:-2],
    "spaces at line ends": lambda text: text.replace(b"\n", b" \t\n"),
    "further spaces and tabs": lambda text: text.replace(b" 0 ", b"  0\t"),
    "indented": lambda text: b"  " + text.replace(b"\n", b"\n  ").rstrip(b" "),
    "gzip": lambda text: gzip.compress(text),
}
FINE_BUT_SLOW: dict[str, Callable[[bytes], bytes]] = {
    "features first": lambda text: b"".join(
        b"|" + features + b" |" + labels + b"\n"
        for _, labels, features in (line.split(b"|") for line in text.splitlines())
    ),
    "tabs after names": lambda text: text.replace(b"features ", b"features\t"),
    "sequence numbers": lambda text: b"".join(
        b"%d %s" % (number, line) for number, line in enumerate(text.splitlines(keepends=True))
    ),
    "comments": lambda text: text.replace(b"|features", b"|# it's |# a digit |features"),
    "comment lines": lambda text: b"|# MNIST\n" + text,
    "other fields": lambda text: text.replace(b"|features", b"|weight 0.5 |features"),
    "blank lines": lambda text: b"\n" + text.replace(b"\n", b"\n \r\n"),
    "leading zeros": lambda text: text.replace(b" 7 ", b" 0007 "),
}


@pytest.mark.usefixtures("no_line_by_line")
@pytest.mark.parametrize("case", FINE_AND_FAST)
def test_variant_is_read_at_once(tmp_path: Path, digits: Arrays, case: str) -> None:
    assert_equal(write_and_read(tmp_path, FINE_AND_FAST[case](text_of(*digits))), digits)


@pytest.mark.parametrize("case", FINE_BUT_SLOW)
def test_variant_is_read_line_by_line(tmp_path: Path, digits: Arrays, case: str) -> None:
    assert_equal(write_and_read(tmp_path, FINE_BUT_SLOW[case](text_of(*digits))), digits)


ZEROS = b"0 " * 783 + b"0"
GOOD_LABELS = b"|labels 0 1 0 0 0 0 0 0 0 0 "
GOOD_FEATURES = b"|features " + ZEROS
BAD = {
    "too few pixels": (
        GOOD_LABELS + GOOD_FEATURES[:-2],
        "line 205, field 'features': expected 784 values, found 783",
    ),
    "too many pixels": (GOOD_LABELS + GOOD_FEATURES + b" 0", "'features'.*784 values, found 785"),
    "too few labels": (b"|labels 0 1 0 " + GOOD_FEATURES, "'labels': expected 10 values, found 3"),
    "value moved to the next line": (
        GOOD_LABELS + GOOD_FEATURES + b" 0\n" + GOOD_LABELS + GOOD_FEATURES[:-2],
        "line 205, field 'features': expected 784 values, found 785",
    ),
    "value moved to the other field": (
        b"|labels 0 1 0 0 0 0 0 0 0 " + GOOD_FEATURES + b" 0",
        "line 205, field 'labels': expected 10 values, found 9",
    ),
    "no number": (
        GOOD_LABELS + GOOD_FEATURES[:-1] + b"x",
        "field 'features', value 784: expected a pixel, .* 0 to 255, found 'x'",
    ),
    "fraction": (GOOD_LABELS + b"|features 0.5" + ZEROS[1:], "value 1: .*found '0.5'"),
    "negative": (GOOD_LABELS + b"|features -1" + ZEROS[1:], "value 1: .*found '-1'"),
    "256": (GOOD_LABELS + b"|features 0 256" + ZEROS[3:], "value 2: .*found '256'"),
    "300": (GOOD_LABELS + b"|features 0 300" + ZEROS[3:], "value 2: .*found '300'"),
    "1000": (GOOD_LABELS + b"|features 1000" + ZEROS[1:], "value 1: .*found '1000'"),
    "65536": (GOOD_LABELS + b"|features 65536" + ZEROS[1:], "value 1: .*found '65536'"),
    "thousands of digits": (
        GOOD_LABELS + b"|features " + b"9" * 5000 + ZEROS[1:],
        f"value 1: .*found '{'9' * 20}…'",
    ),
    "not ASCII": (GOOD_LABELS + b"|features \xe9" + ZEROS[1:], r"value 1: .*found '\\xe9'"),
    "null byte": (GOOD_LABELS + b"|features 0\x00" + ZEROS[1:], "value 1: .*found '0\x00'"),
    "two ones": (b"|labels 1 1 0 0 0 0 0 0 0 0 " + GOOD_FEATURES, "one 1 among zeros, found 2"),
    "no ones": (b"|labels 0 0 0 0 0 0 0 0 0 0 " + GOOD_FEATURES, "one 1 among zeros, found 0"),
    "label out of range": (
        b"|labels 0 2 0 0 0 0 0 0 0 0 " + GOOD_FEATURES,
        "field 'labels', value 2: expected 0 or 1, found '2'",
    ),
    "no labels": (GOOD_FEATURES, "line 205, field 'labels': expected the field, found none"),
    "no features": (GOOD_LABELS, "field 'features': expected the field, found none"),
    "misspelt": (GOOD_LABELS + b"|feature" + GOOD_FEATURES[9:], "field 'features'.*found none"),
    "field twice": (GOOD_LABELS * 2 + GOOD_FEATURES, "'labels': expected the field once"),
    "space after '|'": (b"| labels" + GOOD_LABELS[7:] + GOOD_FEATURES, "name right after '|'"),
    "'|' alone": (GOOD_LABELS + GOOD_FEATURES + b" |", "name right after '|'"),
    "no '|'": (b"5,0,0,0,0", "line 205: expected a field that begins with '|', found '5,0,0,0,0'"),
    "only a sequence number": (b"12", "line 205, field 'labels': expected the field, found none"),
}


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b""])
@pytest.mark.parametrize("case", BAD)
def test_bad_line_is_named_with_field_and_value(
    tmp_path: Path, digits: Arrays, case: str, line_end: bytes
) -> None:
    text, message = BAD[case]
    good = b"".join(text_of(*digits).splitlines(keepends=True)[:204])
    with pytest.raises(DataError, match=message) as raised:
        write_and_read(tmp_path, good + text + line_end)
    assert str(raised.value).startswith(f"{tmp_path / 'Train-28x28_cntk_text.txt'}, line 205")
    assert raised.value.remedy


def test_fast_way_never_takes_what_the_exact_one_does_not(digits: Arrays) -> None:
    """Change bytes at random; where the fast way has an answer, the exact one has the same."""
    random = np.random.default_rng(0)
    text = text_of(digits[0][:3], digits[1][:3])
    # Near the tags and the line ends, where the layout is decided, and anywhere.
    ends = [place for place, byte in enumerate(text) if byte in b"|\n"]
    num_answers = 0
    for _ in range(400):
        changed = bytearray(text)
        for _ in range(random.integers(1, 4)):
            near = random.choice(ends) + random.integers(-4, 12)
            place = random.choice([near, random.integers(len(changed))]) % len(changed)
            new = random.choice(list(b"0129 |\n\r\tlx\0"))
            changed[place : place + random.integers(0, 2)] = bytes([new])
        block = bytes(changed).rstrip(b"\n") + b"\n"
        fast = ctf._parse_block(np.frombuffer(block, np.uint8))
        if fast is not None:
            num_answers += 1
            assert_equal(fast, ctf._parse_lines(block, "file", 1))
    assert num_answers > 20


def test_line_number_counts_blank_lines_and_comments(tmp_path: Path, digits: Arrays) -> None:
    good = text_of(*digits)
    with pytest.raises(DataError, match="line 603"):
        write_and_read(tmp_path, good + b"\n|# more\n" + good + b"|labels x\n")


@pytest.mark.parametrize("content", [b"\n", b"\n\r\n", b"|# nothing\n", b" "])
def test_file_without_samples_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(DataError, match="only blank lines or comments"):
        write_and_read(tmp_path, content)


def test_empty_missing_and_truncated_files_are_refused(tmp_path: Path, digits: Arrays) -> None:
    with pytest.raises(DataError, match="an empty file"):
        write_and_read(tmp_path, b"")
    with pytest.raises(DataError, match="nothing there"):
        read_ctf(tmp_path / "absent")
    with pytest.raises(DataError, match="line 300, field 'features': expected 784 values"):
        write_and_read(tmp_path, text_of(*digits)[:-500])
    with pytest.raises(DataError, match="truncated"):
        write_and_read(tmp_path, gzip.compress(text_of(*digits))[:-50])


def test_arrays_that_are_not_mnist_are_not_written(tmp_path: Path, digits: Arrays) -> None:
    images, labels = digits
    path = tmp_path / "file"
    with pytest.raises(ValueError, match="299 images"):
        write_ctf(path, images, labels[1:])
    with pytest.raises(ValueError, match="float64"):
        write_ctf(path, images.astype(float), labels)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="got 10 to"):
        write_ctf(path, images, labels + np.uint8(10))
    assert not path.exists()
