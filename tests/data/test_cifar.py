import hashlib
import io
import pickle
import tarfile

import numpy as np
import pytest
import torch

from tutorial_lib.data import cifar
from tutorial_lib.data.cifar import CLASSES, SAMPLE, cifar10, cifar10_sample
from tutorial_lib.data.cifar_files import read_binary, read_python
from tutorial_lib.data.errors import DataError

NAMES = [*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]


def records(count, seed=0):
    random = np.random.default_rng(seed)
    labels = random.integers(0, 10, count, dtype=np.uint8)
    pixels = random.integers(0, 256, (count, 3072), dtype=np.uint8)
    return labels, pixels


def binary(labels, pixels):
    return np.concatenate([labels[:, None], pixels], axis=1).tobytes()


@pytest.fixture
def folder(tmp_path):
    """A small CIFAR-10 in the binary layout, in a folder of that name."""
    place = tmp_path / "cifar-10-batches-bin"
    place.mkdir()
    for seed, name in enumerate(NAMES):
        (place / f"{name}.bin").write_bytes(binary(*records(4, seed)))
    return tmp_path


def test_bytes_are_label_red_green_blue_by_rows(tmp_path):
    pixels = np.zeros((1, 3, 32, 32), np.uint8)
    pixels[0, 1, 2, 3] = 200  # green, third row, fourth column
    content = b"\x07" + pixels.tobytes()
    (tmp_path / "batch").write_bytes(content)
    images, labels = read_binary(tmp_path / "batch")
    assert labels.tolist() == [7]
    assert np.array_equal(images, pixels)
    assert content[1 + 1024 + 2 * 32 + 3] == 200


@pytest.mark.parametrize("inside", [True, False])
def test_a_folder_is_read_in_the_files_order(folder, inside):
    dataset = cifar10(folder / "cifar-10-batches-bin" if inside else folder)
    assert dataset.name == "CIFAR-10"
    assert dataset.class_names == CLASSES
    assert dataset.train.images.shape == (20, 3, 32, 32)
    assert dataset.train.images.dtype == torch.uint8
    assert dataset.train.features.shape == (20, 3072)
    expected = [label for seed in range(5) for label in records(4, seed)[0]]
    assert dataset.train.labels.tolist() == expected
    assert dataset.test.labels.tolist() == records(4, 5)[0].tolist()


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_both_layouts_hold_the_same(folder, tmp_path, protocol):
    place = tmp_path / "cifar-10-batches-py"
    place.mkdir()
    for seed, name in enumerate(NAMES):
        labels, pixels = records(4, seed)
        batch = {b"data": pixels, b"labels": labels.tolist(), b"batch_label": name.encode()}
        (place / name).write_bytes(pickle.dumps(batch, protocol))
    from_python = cifar10(place)
    from_binary = cifar10(folder)
    for split in ("train", "test"):
        ours, theirs = getattr(from_python, split), getattr(from_binary, split)
        assert torch.equal(ours.images, theirs.images)
        assert torch.equal(ours.labels, theirs.labels)


class Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_a_pickle_is_not_let_call_anything(tmp_path):
    labels, pixels = records(2)
    batch = {b"data": pixels, b"labels": labels.tolist(), b"more": Evil(tmp_path / "broken in")}
    (tmp_path / "batch").write_bytes(pickle.dumps(batch))
    with pytest.raises(DataError, match=r"a pickle that wants .*open.*don't use this one"):
        read_python(tmp_path / "batch")
    assert not (tmp_path / "broken in").exists()


@pytest.mark.parametrize(
    ("batch", "found"),
    [
        ([1, 2], "a list without these"),
        ({b"data": np.zeros((2, 3072), np.uint8)}, "a dict without these"),
        ({b"data": np.zeros((2, 3072), np.uint8), b"labels": [1]}, r"\(2, 3072\) with 1 labels"),
        ({b"data": np.zeros((1, 3071), np.uint8), b"labels": [1]}, r"\(1, 3071\) with 1 labels"),
        ({b"data": np.zeros((1, 3072), float), b"labels": [1]}, r"\(1, 3072\) with 1 labels"),
        ({b"data": np.zeros((1, 3072), np.uint8), b"labels": [10]}, "image 0: .*found 10"),
        ({b"data": np.zeros((0, 3072), np.uint8), b"labels": []}, "at least one image"),
    ],
)
def test_other_pickles_are_refused(tmp_path, batch, found):
    (tmp_path / "batch").write_bytes(pickle.dumps(batch))
    with pytest.raises(DataError, match=found):
        read_python(tmp_path / "batch")


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "an empty file"),
        (binary(*records(2))[:-5], r"6,141 bytes, which are 1 records and 3,068 bytes"),
        (b"\x0a" + bytes(3072), "image 0: expected labels from 0 to 9, found 10"),
    ],
)
def test_bad_binary_files_are_refused(tmp_path, content, found):
    (tmp_path / "batch.bin").write_bytes(content)
    with pytest.raises(DataError, match=found):
        read_binary(tmp_path / "batch.bin")


def test_a_damaged_pickle_is_refused(tmp_path):
    labels, pixels = records(2)
    content = pickle.dumps({b"data": pixels, b"labels": labels.tolist()})
    (tmp_path / "batch").write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match="no whole pickle"):
        read_python(tmp_path / "batch")


def test_a_missing_file_is_named(folder, tmp_path):
    (folder / "cifar-10-batches-bin" / "data_batch_3.bin").unlink()
    with pytest.raises(DataError, match=r"data_batch_3\.bin: .*nothing there"):
        cifar10(folder)
    with pytest.raises(DataError, match=r"none of them. Unpack http.*cs\.toronto\.edu"):
        cifar10(tmp_path / "nowhere")


def test_the_sample_is_small_balanced_real_and_named():
    sample = cifar10_sample()
    assert sample.name == "CIFAR-10 sample"
    assert SAMPLE.stat().st_size <= 3_000_000
    assert sample.train.labels.bincount().tolist() == [200] * 10
    assert sample.test.labels.bincount().tolist() == [50] * 10
    assert sample.train.images.shape == (2000, 3, 32, 32)
    everything = torch.cat([sample.train.features, sample.test.features])
    assert len(everything.unique(dim=0)) == 2500
    assert 30 < everything.float().std() < 90
    assert cifar10().name == sample.name


def test_a_damaged_sample_is_noticed(tmp_path, monkeypatch):
    copy = tmp_path / "sample.zip"
    copy.write_bytes(SAMPLE.read_bytes()[:-1])
    monkeypatch.setattr(cifar, "SAMPLE", copy)
    with pytest.raises(DataError, match="Install the package again"):
        cifar10_sample()


@pytest.fixture
def archive(folder, tmp_path, monkeypatch):
    """The small CIFAR-10 as an archive in a cache of its own, as if it had been downloaded."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        tar.add(folder / "cifar-10-batches-bin", "cifar-10-batches-bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    cached = tmp_path / "cache" / "gan-tutorial" / "cifar-10"
    cached.mkdir(parents=True)
    (cached / cifar.ARCHIVE).write_bytes(buffer.getvalue())
    digest = hashlib.sha256(buffer.getvalue()).hexdigest()
    monkeypatch.setattr(cifar, "ARCHIVE_SHA256", {cifar.ARCHIVE: digest})
    return cached / cifar.ARCHIVE


def test_a_download_is_unpacked_once(archive, folder):
    first = cifar10(download=True)
    archive.unlink()  # what is unpacked is enough from now on
    for dataset in (first, cifar10(download=True)):
        assert torch.equal(dataset.train.images, cifar10(folder).train.images)
        assert dataset.name == "CIFAR-10"


def test_without_internet_the_way_by_hand_is_told(archive, monkeypatch):
    archive.write_bytes(b"damaged")
    monkeypatch.setattr(cifar, "MIRRORS", ("http://127.0.0.1:9",))
    with pytest.raises(DataError, match=r"by hand:(.|\n)*cifar-10-binary\.tar\.gz"):
        cifar10(download=True)
