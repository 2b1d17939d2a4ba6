from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import pytest
import torch

from tutorial_lib.data import datasets
from tutorial_lib.data.datasets import BUNDLED_MNIST, Dataset, fashion_mnist, mnist
from tutorial_lib.data.errors import DataError


@pytest.fixture(scope="module")
def bundled() -> Dataset:
    return mnist()


def test_bundled_mnist_is_mnist(bundled: Dataset) -> None:
    assert bundled.name == "MNIST"
    assert bundled.class_names == tuple("0123456789")
    for split, n in ((bundled.train, 60_000), (bundled.test, 10_000)):
        assert len(split) == n
        assert split.images.shape == (n, 28, 28)
        assert split.images.dtype == torch.uint8
        assert split.labels.dtype == torch.int64
    assert bundled.train.labels.bincount().tolist() == [
        5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949,
    ]  # fmt: skip
    assert bundled.train.labels[5001] == 3  # the image that CNTK's notebook 103A shows


def test_features_are_a_view_of_the_images(bundled: Dataset) -> None:
    features = bundled.test.features
    assert features.shape == (10_000, 784)
    assert features.data_ptr() == bundled.test.images.data_ptr()
    assert torch.equal(features[7].reshape(28, 28), bundled.test.images[7])


def test_licence_and_attribution_ship_with_the_data() -> None:
    text = (BUNDLED_MNIST / "LICENSE.md").read_text(encoding="utf-8")
    assert "Yann LeCun" in text
    assert "Corinna Cortes" in text
    assert "CC BY-SA 3.0" in text


def test_damage_to_the_bundled_files_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in BUNDLED_MNIST.glob("*.gz"):
        shutil.copy(path, tmp_path)
    path = tmp_path / "t10k-images-idx3-ubyte.gz"
    content = bytearray(gzip.decompress(path.read_bytes()))
    content[-1] ^= 1  # one bit of the last pixel
    path.write_bytes(gzip.compress(content, 1))
    monkeypatch.setattr(datasets, "BUNDLED_MNIST", tmp_path)
    with pytest.raises(DataError, match=r"SHA-256 0fa7898d.*Install the package again"):
        mnist()


def test_folder_of_the_readers_own(idx_folder: Path, ctf_folder: Path) -> None:
    from_idx, from_ctf = mnist(idx_folder), mnist(str(ctf_folder))
    for name in ("train", "test"):
        left, right = getattr(from_idx, name), getattr(from_ctf, name)
        assert torch.equal(left.images, right.images)
        assert torch.equal(left.labels, right.labels)


@pytest.mark.parametrize("missing", ["folder", "files", "Train-28x28_cntk_text.txt"])
def test_missing_data_is_told_in_cntks_words(ctf_folder: Path, missing: str) -> None:
    if missing == "folder":
        shutil.rmtree(ctf_folder)
    for path in ctf_folder.glob("*" if missing == "files" else missing):
        path.unlink()
    with pytest.raises(ValueError, match="Please generate the data by completing CNTK 103 Part A"):
        mnist(ctf_folder)


def test_fashion_mnist_from_a_folder(idx_folder: Path) -> None:
    dataset = fashion_mnist(idx_folder)
    assert (dataset.name, len(dataset.train), len(dataset.test)) == ("Fashion-MNIST", 23, 9)
    assert dataset.class_names[9] == "Ankle boot"
    assert len(dataset.class_names) == 10


def test_fashion_mnist_without_download_tells_the_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(DataError, match="by hand") as raised:
        fashion_mnist(download=False)
    message = str(raised.value)
    assert f"put the files into {tmp_path / 'gan-tutorial' / 'fashion-mnist'}" in message
    assert all(name in message for name in datasets.FASHION_SHA256)
    assert not list(tmp_path.iterdir())
