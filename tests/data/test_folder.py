from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from tutorial_lib.data.errors import DataError
from tutorial_lib.data.folder import CTF_NAMES, IDX_NAMES, read_folder
from tutorial_lib.data.idx import write_idx

Arrays = tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]
REMEDY = "Get the data"


@pytest.mark.parametrize("kind", ["idx_folder", "ctf_folder"])
def test_both_formats_are_read(
    kind: str, request: pytest.FixtureRequest, random_digits: Callable[[int], Arrays]
) -> None:
    parts = read_folder(request.getfixturevalue(kind), REMEDY)
    for part, n in zip(parts, (23, 9), strict=True):
        for array, expected in zip(part, random_digits(n), strict=True):
            assert np.array_equal(array, expected)


def test_idx_is_preferred_only_when_complete(idx_folder: Path, ctf_folder: Path) -> None:
    for path in ctf_folder.iterdir():
        shutil.copy(path, idx_folder)
    (idx_folder / IDX_NAMES[0][1]).unlink()
    assert len(read_folder(idx_folder, REMEDY)[0][0]) == 23


def test_home_is_expanded(idx_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(idx_folder.parent))
    assert len(read_folder("~/idx", REMEDY)[1][0]) == 9


def test_missing_folder_and_file_in_its_place(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"absent: expected a folder .* nothing there\. Get the"):
        read_folder(tmp_path / "absent", REMEDY)
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="expected a folder, found 'Not a directory'"):
        read_folder(tmp_path / "file", REMEDY)


def test_empty_folder_is_told_what_may_be_in_it(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="none of them") as raised:
        read_folder(tmp_path, REMEDY)
    for name in (*IDX_NAMES[0], *IDX_NAMES[1], *CTF_NAMES):
        assert name in str(raised.value)


@pytest.mark.parametrize("name", [name for pair in IDX_NAMES for name in pair])
def test_missing_idx_file_is_named(idx_folder: Path, name: str) -> None:
    next(idx_folder.glob(f"{name}*")).unlink()
    with pytest.raises(DataError, match=rf"{name}: .*nothing there\. Get the data"):
        read_folder(idx_folder, REMEDY)


@pytest.mark.parametrize("name", CTF_NAMES)
def test_missing_ctf_file_is_named(ctf_folder: Path, name: str) -> None:
    (ctf_folder / name).unlink()
    with pytest.raises(DataError, match=rf"{name}: .*nothing there\. Get the data"):
        read_folder(ctf_folder, REMEDY)


def test_folder_that_may_not_be_listed(idx_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(DataError, match=r"a folder that you may read.*no permission.*chmod u\+rx"):
        read_folder(idx_folder, REMEDY)


@pytest.mark.parametrize(
    ("mode", "message"), [(0o000, "no permission"), (0o444, "'Permission denied'")]
)
def test_folder_without_permissions(idx_folder: Path, mode: int, message: str) -> None:
    """Without root's power to read everything: as `nobody` where we are root."""
    # Imports first, since `nobody` need not be able to read this checkout.
    program = (
        "import os, sys; from tutorial_lib.data.folder import read_folder\n"
        "if os.geteuid() == 0: os.setgid(65534); os.setuid(65534)\n"
        "read_folder(sys.argv[1], 'Get the data')"
    )
    with tempfile.TemporaryDirectory() as parent:
        os.chmod(parent, 0o755)
        folder = Path(shutil.copytree(idx_folder, f"{parent}/idx"))
        folder.chmod(mode)
        command = [sys.executable, "-c", program, str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        folder.chmod(0o755)
    assert done.returncode == 1
    assert f"DataError: {folder}" in done.stderr
    assert message in done.stderr.splitlines()[-1]


def replace_images(folder: Path, images: npt.NDArray[np.uint8]) -> None:
    write_idx(folder / f"{IDX_NAMES[0][0]}.gz", images)


def test_images_of_another_size(idx_folder: Path) -> None:
    replace_images(idx_folder, np.zeros((23, 32, 28), np.uint8))
    with pytest.raises(DataError, match=r"gz, header: expected images of 28 by 28.*found 32 by 28"):
        read_folder(idx_folder, REMEDY)


def test_images_without_their_dimensions(idx_folder: Path) -> None:
    replace_images(idx_folder, np.zeros((23, 784), np.uint8))
    with pytest.raises(DataError, match="magic number 2051, found magic number 2050"):
        read_folder(idx_folder, REMEDY)


def test_images_and_labels_of_different_length(idx_folder: Path) -> None:
    replace_images(idx_folder, np.zeros((24, 28, 28), np.uint8))
    with pytest.raises(DataError, match=r"labels-idx1-ubyte: expected 24 labels.*found 23"):
        read_folder(idx_folder, REMEDY)


def test_no_images(idx_folder: Path) -> None:
    replace_images(idx_folder, np.zeros((0, 28, 28), np.uint8))
    write_idx(idx_folder / IDX_NAMES[0][1], np.zeros(0, np.uint8))
    with pytest.raises(DataError, match="at least one image, found none"):
        read_folder(idx_folder, REMEDY)


def test_label_out_of_range(idx_folder: Path) -> None:
    labels = np.zeros(23, np.uint8)
    labels[17] = 10
    write_idx(idx_folder / IDX_NAMES[0][1], labels)
    with pytest.raises(DataError, match="label 17: expected labels from 0 to 9, found 10"):
        read_folder(idx_folder, REMEDY)


def test_labels_under_the_images_name(idx_folder: Path) -> None:
    write_idx(idx_folder / IDX_NAMES[0][0], np.zeros(23, np.uint8))
    with pytest.raises(DataError, match="magic number 2051, found magic number 2049"):
        read_folder(idx_folder, REMEDY)


def test_truncated_gzip(idx_folder: Path) -> None:
    path = idx_folder / f"{IDX_NAMES[1][0]}.gz"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match=r"t10k-images-idx3-ubyte\.gz: .*damaged or truncated"):
        read_folder(idx_folder, REMEDY)


def test_wrong_checksum(idx_folder: Path) -> None:
    sums = {name: "0" * 64 for pair in IDX_NAMES for name in pair}
    with pytest.raises(DataError, match=r"expected SHA-256 0{64}, found [0-9a-f]{64}"):
        read_folder(idx_folder, REMEDY, sums)


def test_label_out_of_range_in_ctf(ctf_folder: Path) -> None:
    path = ctf_folder / CTF_NAMES[1]
    path.write_bytes(path.read_bytes().replace(b"|labels 0", b"|labels 3"))
    with pytest.raises(DataError, match=r"Test.*line \d, field 'labels', value 1: .* found '3'"):
        read_folder(ctf_folder, REMEDY)


def test_gzip_inside_plain_name_is_fine(idx_folder: Path) -> None:
    path = idx_folder / IDX_NAMES[0][1]
    path.write_bytes(gzip.compress(path.read_bytes()))
    assert len(read_folder(idx_folder, REMEDY)[0][1]) == 23
