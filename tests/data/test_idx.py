from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from tutorial_lib.data.errors import DataError
from tutorial_lib.data.idx import read_idx, write_idx


@pytest.mark.parametrize("shape", [(1,), (7,), (0,), (3, 28, 28), (2, 3, 4, 5)])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_what_is_written_is_read(tmp_path: Path, shape: tuple[int, ...], suffix: str) -> None:
    array = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    path = tmp_path / f"file{suffix}"
    write_idx(path, array)
    assert path.read_bytes().startswith(b"\x1f\x8b" if suffix else b"\0\0\x08")
    read = read_idx(path, len(shape))
    assert read.shape == shape
    assert np.array_equal(read, array)
    assert read.flags.writeable


def test_header_is_big_endian(tmp_path: Path) -> None:
    write_idx(tmp_path / "file", np.zeros((258, 2), np.uint8))
    assert (tmp_path / "file").read_bytes()[:12] == b"\0\0\x08\x02\0\0\x01\x02\0\0\0\x02"


def test_gzip_is_told_by_content_not_name(tmp_path: Path) -> None:
    write_idx(tmp_path / "file.gz", np.arange(5, dtype=np.uint8))
    (tmp_path / "file.gz").rename(tmp_path / "plain")
    assert read_idx(tmp_path / "plain").tolist() == [0, 1, 2, 3, 4]


def test_equal_arrays_make_equal_files(tmp_path: Path) -> None:
    for name in ("a.gz", "b.gz"):
        write_idx(tmp_path / name, np.arange(5, dtype=np.uint8))
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


GOOD = b"\0\0\x08\x01\0\0\0\x03abc"
BAD = {
    "empty file": (b"", "found an empty file"),
    "three bytes": (GOOD[:3], "only 3 bytes"),
    "cut header": (GOOD[:6], "header: expected a header of 8 bytes, found only 6 bytes"),
    "other format": (b"\x89PNG\r\n\x1a\n", "found magic number 2303741511"),
    "floats": (b"\0\0\x0d\x01" + GOOD[4:], "magic number 2049, found magic number 3329"),
    "images for labels": (
        b"\0\0\x08\x03" + GOOD[4:],
        "magic number 2049, found magic number 2051, which is 3-dimensional",
    ),
    "cut data": (GOOD[:-1], r"3 bytes of data, from dimensions \(3,\) in the header, found 2"),
    "trailing data": (GOOD + b"d", "3 bytes of data.*found 4"),
    "truncated gzip": (gzip.compress(GOOD)[:-5], "damaged or truncated"),
    "gzip header only": (gzip.compress(GOOD)[:5], "damaged or truncated"),
    "damaged gzip": (gzip.compress(GOOD)[:-8] + b"\0" * 8, "damaged or truncated"),
    "empty gzip": (gzip.compress(b""), "found an empty file"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_file_is_named_with_what_is_wrong(tmp_path: Path, case: str) -> None:
    content, message = BAD[case]
    path = tmp_path / "labels"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as raised:
        read_idx(path, ndim=1)
    assert str(raised.value).startswith(str(path))
    assert raised.value.remedy


def test_missing_file_and_folder_in_place_of_a_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nothing there"):
        read_idx(tmp_path / "absent")
    with pytest.raises(DataError, match="'Is a directory'"):
        read_idx(tmp_path)


def test_other_arrays_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="got float64"):
        write_idx(tmp_path / "file", np.zeros(3))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="0 dimensions"):
        write_idx(tmp_path / "file", np.uint8(3).reshape(()))
    assert not list(tmp_path.iterdir())
