"""``gan-tutorial data``: what is here, and what a folder holds."""

from __future__ import annotations

import pytest

from tutorial_lib.data.errors import DataError
from tutorial_lib.data.install import install
from tutorial_lib.launcher import data_sets


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "gan-tutorial"


def test_the_list_tells_what_is_here_and_how_to_get_the_rest(cache):
    (cache / "fashion-mnist").mkdir(parents=True)
    (cache / "fashion-mnist" / "train-labels-idx1-ubyte.gz").touch()
    mnist, sample, fashion, cifar = data_sets.list_data()
    assert "60,000 training and 10,000 test pictures; in the package, intact" in mnist
    assert "intact" in sample
    assert str(cache) in fashion
    assert "not here; `gan-tutorial data download cifar-10` (170 MB)" in cifar


def test_what_was_read_is_told(cache, monkeypatch):
    monkeypatch.setitem(data_sets.DOWNLOADED, "fashion-mnist", (30, data_sets.mnist))
    told = data_sets.download("fashion-mnist")
    assert told.startswith("fashion-mnist: 60,000 training and 10,000 test pictures; in ")


def test_a_folder_of_one_s_own_is_read(tmp_path):
    install("idx", tmp_path / "digits", lambda _: None)
    assert "MNIST, 60,000 training" in data_sets.verify(tmp_path / "digits")
    (tmp_path / "digits" / "t10k-labels-idx1-ubyte").write_bytes(b"damaged")
    with pytest.raises(DataError, match="t10k-labels"):
        data_sets.verify(tmp_path / "digits")


def test_a_folder_that_is_nearly_cifar_10_is_told_what_it_lacks(tmp_path):
    (tmp_path / "test_batch.bin").touch()
    with pytest.raises(DataError, match=r"data_batch_1\.bin"):
        data_sets.verify(tmp_path)


def test_a_folder_with_neither_is_told_of_mnist(tmp_path):
    with pytest.raises(DataError, match="train-images-idx3-ubyte"):
        data_sets.verify(tmp_path)
