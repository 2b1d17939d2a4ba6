from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tutorial_lib.data.datasets import mnist
from tutorial_lib.data.errors import DataError
from tutorial_lib.data.files import has_sha256
from tutorial_lib.data.folder import CTF_NAMES
from tutorial_lib.data.install import CTF_SHA256, install

CTF_BYTES = {CTF_NAMES[0]: 111_735_994, CTF_NAMES[1]: 18_649_443}


def test_ctf_is_byte_for_byte_cntks_and_made_once(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    said: list[str] = []
    paths = install("ctf", folder, said.append)
    assert [path.name for path in paths] == list(CTF_NAMES)
    assert said == [f"Saving {path}" for path in paths]
    assert {path.name: path.stat().st_size for path in paths} == CTF_BYTES
    assert all(has_sha256(path, CTF_SHA256[path.name]) for path in paths)

    times = [path.stat().st_mtime_ns for path in paths]
    said.clear()
    install("ctf", folder, said.append)
    assert said == [f"File already exists {path}" for path in paths]
    assert [path.stat().st_mtime_ns for path in paths] == times

    from_ctf, bundled = mnist(folder), mnist()
    for left, right in ((from_ctf.train, bundled.train), (from_ctf.test, bundled.test)):
        assert torch.equal(left.images, right.images)
        assert torch.equal(left.labels, right.labels)


def test_idx_is_complete_and_a_damaged_file_is_replaced(tmp_path: Path) -> None:
    install("idx", tmp_path, lambda _: None)
    assert torch.equal(mnist(tmp_path).train.images, mnist().train.images)
    damaged = tmp_path / "t10k-labels-idx1-ubyte"
    damaged.write_bytes(damaged.read_bytes()[:100])
    said: list[str] = []
    install("idx", tmp_path, said.append)
    assert [line.split()[0] for line in said] == ["File", "File", "File", "Replacing"]
    assert damaged.stat().st_size == 10_008
    assert len(list(tmp_path.iterdir())) == 4


def test_other_format_and_file_in_place_of_the_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="one of ctf, idx, got 'png'"):
        install("png", tmp_path)  # type: ignore[arg-type]
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"a folder to write to, found 'Not a directory'.*--out"):
        install("idx", tmp_path / "file", lambda _: None)
