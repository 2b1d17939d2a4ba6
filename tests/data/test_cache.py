"""Sources are read once, by one process, whatever happens to it; the rest map what it made."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import filelock
import numpy as np
import numpy.typing as npt
import pytest
import torch

from tutorial_lib.data import cache, ctf
from tutorial_lib.data.cache import read_columns, read_content
from tutorial_lib.data.cifar import BATCHES, TEST_BATCH, cifar10
from tutorial_lib.data.columns import Columns
from tutorial_lib.data.ctf import read_ctf, write_ctf
from tutorial_lib.data.datasets import mnist
from tutorial_lib.data.errors import DataError

Arrays = tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]


@pytest.fixture
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "SMALL_BYTES", 1)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.txt"
    path.write_bytes(bytes(range(200)))
    return path


class Reading:
    """Reads a file as one column, and counts how often."""

    def __init__(self, source: Path) -> None:
        self.source = source
        self.count = 0

    def __call__(self) -> Iterator[Columns]:
        self.count += 1
        yield (np.frombuffer(self.source.read_bytes(), np.uint8),)

    def columns(self) -> Columns:
        return read_columns([self.source], self)


def cached(folder: Path) -> list[str]:
    names = (path.name for path in folder.glob("gan-tutorial/columns/*"))
    return sorted(name for name in names if not name.startswith("."))


def is_mapped(tensor: torch.Tensor) -> bool:
    """Whether a tensor's memory is a file's."""
    address = tensor.data_ptr()
    for line in Path("/proc/self/maps").read_text().splitlines():
        bounds, _, _, _, inode, *_ = line.split()
        first, last = (int(bound, 16) for bound in bounds.split("-"))
        if first <= address < last:
            return inode != "0"
    return False


needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")


@needs_proc
@pytest.mark.parametrize("kind", ["idx_folder", "ctf_folder"])
def test_mnist_is_the_same_in_memory_and_mapped(
    kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder: Path = request.getfixturevalue(kind)
    in_memory = mnist(folder)
    contents = {path: path.read_bytes() for path in folder.iterdir()}
    monkeypatch.setattr(cache, "SMALL_BYTES", 1)
    for _ in range(2):  # as the first, and from what the first has left
        mapped = mnist(folder)
        for name in ("train", "test"):
            ours, theirs = getattr(mapped, name), getattr(in_memory, name)
            assert is_mapped(ours.images)
            assert not is_mapped(theirs.images)
            assert torch.equal(ours.images, theirs.images)
            assert torch.equal(ours.labels, theirs.labels)
            ours.images.zero_()  # in this process only
    assert contents == {path: path.read_bytes() for path in folder.iterdir()}


@needs_proc
@pytest.mark.usefixtures("everything_is_large")
def test_cifar_is_mapped(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    records = random.integers(0, 10, (6, 4, 3073), dtype=np.uint8)
    for name, record in zip((*BATCHES, TEST_BATCH), records, strict=True):
        (tmp_path / f"{name}.bin").write_bytes(record.tobytes())
    for _ in range(2):
        train = cifar10(tmp_path).train
        assert is_mapped(train.images)
        assert np.array_equal(train.features.numpy(), records[:5, :, 1:].reshape(20, 3072))
        assert train.labels.tolist() == records[:5, :, 0].flatten().tolist()


@pytest.mark.usefixtures("everything_is_large")
def test_text_is_parsed_once(
    tmp_path: Path,
    random_digits: Callable[[int], Arrays],
    private_cache: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "Train.txt"
    write_ctf(path, *random_digits(40))
    images, labels = read_ctf(path)
    monkeypatch.setattr(ctf, "_parse_block", lambda _: pytest.fail("parsed again"))
    for ours, theirs, made in zip((images, labels), read_ctf(path), random_digits(40), strict=True):
        assert np.array_equal(ours, theirs)
        assert np.array_equal(ours, made.reshape(ours.shape))
    assert len(cached(private_cache)) == 1


def test_small_files_leave_nothing_in_the_cache(source: Path, private_cache: Path) -> None:
    reading = Reading(source)
    reading.columns()
    reading.columns()
    assert reading.count == 2
    assert not list(private_cache.iterdir())


def change_bytes(path: Path) -> None:
    """Change one, and put the time back."""
    status = path.stat()
    path.write_bytes(b"!" + path.read_bytes()[1:])
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def change_size(path: Path) -> None:
    status = path.stat()
    path.write_bytes(path.read_bytes() + b"!")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def change_time(path: Path) -> None:
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))


@pytest.mark.usefixtures("everything_is_large")
@pytest.mark.parametrize("change", [change_bytes, change_size, change_time])
def test_changed_source_is_read_anew_in_place_of_the_old(
    source: Path, private_cache: Path, change: Callable[[Path], None]
) -> None:
    reading = Reading(source)
    before = reading.columns()[0]
    old = before.copy()
    change(source)
    for _ in range(2):
        assert bytes(reading.columns()[0]) == source.read_bytes()
    assert reading.count == 2
    assert np.array_equal(before, old), "who has mapped the old one keeps it"
    assert len(cached(private_cache)) == 1


@pytest.mark.usefixtures("everything_is_large")
def test_what_was_made_of_a_source_that_is_gone_goes(source: Path, private_cache: Path) -> None:
    Reading(source).columns()
    other = source.with_name("other")
    source.rename(other)
    Reading(other).columns()
    assert [name.split("-")[0] for name in cached(private_cache)] == ["other"]


@pytest.mark.usefixtures("everything_is_large")
def test_broken_source_is_an_error_and_leaves_nothing(tmp_path: Path, private_cache: Path) -> None:
    path = tmp_path / "labels"
    path.write_bytes(gzip.compress(b"abc" * 1000)[:-9])
    with pytest.raises(DataError, match="truncated"):
        read_content(path)
    (tmp_path / "Train.txt").write_text("|labels 1 2")
    with pytest.raises(DataError, match="line 1"):
        read_ctf(tmp_path / "Train.txt")
    with pytest.raises(DataError, match="nothing there"):
        read_ctf(tmp_path / "absent")
    left = [p.suffix for p in private_cache.rglob("*") if p.is_file()]
    assert set(left) <= {".lock"}


PROGRAM = textwrap.dedent(
    """
    import os
    import sys
    import time
    from pathlib import Path
    import numpy as np
    from tutorial_lib.data import cache

    vars(os).pop("O_TMPFILE", None)  # as on NFS, where a half has a name, and outlives its writer
    cache.SMALL_BYTES = 1
    source, log, is_stuck = Path(sys.argv[1]), sys.argv[2], sys.argv[3:] == ["stuck"]

    def blocks():
        with open(log, "a") as file:
            file.write("read\\n")
        content = np.frombuffer(source.read_bytes(), np.uint8)
        yield (content[:100],)
        if is_stuck:
            print("half", flush=True)
        time.sleep(600 if is_stuck else 0.3)
        yield (content[100:],)

    (column,) = cache.read_columns([source], blocks)
    assert bytes(column) == source.read_bytes()
    """
)


def start(*arguments: str | Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_of_several_processes_one_reads(source: Path, tmp_path: Path, private_cache: Path) -> None:
    processes = [start(source, tmp_path / "log") for _ in range(4)]
    for process in processes:
        _, errors = process.communicate(timeout=100)
        assert process.returncode == 0, errors
    assert (tmp_path / "log").read_text() == "read\n"
    assert len(cached(private_cache)) == 1


@pytest.fixture
def stuck_writer(source: Path, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock and has written a half."""
    process = start(source, tmp_path / "log", "stuck")
    assert process.stdout is not None
    assert process.stdout.readline() == "half\n"
    yield process
    process.kill()
    process.communicate(timeout=60)


@pytest.mark.usefixtures("everything_is_large")
def test_writer_that_is_killed_is_followed_by_another(
    source: Path, stuck_writer: subprocess.Popen[str], private_cache: Path
) -> None:
    folder = private_cache / "gan-tutorial" / "columns"
    half = {path for path in folder.iterdir() if path.suffix not in (".lock", ".holder")}
    assert len(half) == 1
    stuck_writer.send_signal(signal.SIGKILL)
    stuck_writer.wait(60)
    reading = Reading(source)
    assert bytes(reading.columns()[0]) == source.read_bytes()
    assert reading.count == 1
    assert not half & set(folder.iterdir())
    assert len(cached(private_cache)) == 1


@pytest.mark.usefixtures("everything_is_large")
def test_who_waits_too_long_says_for_whom_and_reads_for_itself(
    source: Path,
    stuck_writer: subprocess.Popen[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(cache, "PATIENCE_S", 0.2)
    monkeypatch.setattr(cache, "LOCK_TIMEOUT_S", 0.4)
    assert bytes(Reading(source).columns()[0]) == source.read_bytes()
    waiting, gave_up = capsys.readouterr().err.splitlines()
    assert f"waiting for process {stuck_writer.pid} on " in waiting
    assert f"process {stuck_writer.pid} on " in gave_up
    assert "takes memory of this process instead" in gave_up


@pytest.mark.usefixtures("everything_is_large")
def test_folder_that_cannot_be_written_is_told_in_one_line(
    source: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(source))  # not even root makes a folder in a file
    reading = Reading(source)
    assert bytes(reading.columns()[0]) == source.read_bytes()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{source}: can't be kept in the cache (Not a directory: ")


@pytest.mark.usefixtures("everything_is_large")
def test_readable_folder_is_enough_when_the_binary_is_there(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = Reading(source)
    reading.columns()
    monkeypatch.setattr(filelock, "FileLock", lambda *_, **__: pytest.fail("locked"))
    reading.columns()
    assert reading.count == 1


def test_full_disk_is_told_in_one_line_and_leaves_nothing(
    source: Path, tmp_path: Path, private_cache: Path
) -> None:
    # To a program, a file that may not grow any more looks as on a full disk.
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (150, 150))"
    command = [sys.executable, "-c", f"{limit}\n{PROGRAM}", source, tmp_path / "log"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert run.returncode == 0, run.stderr
    (line,) = run.stderr.splitlines()
    assert "can't be kept in the cache (File too large" in line
    left = [path for path in private_cache.rglob("*") if path.is_file()]
    assert {path.suffix for path in left} <= {".lock"}


@needs_proc
def test_large_file_is_mapped_where_it_lies(
    source: Path, private_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "SMALL_BYTES", 100)
    content = read_content(source)
    assert is_mapped(torch.from_numpy(content))
    assert bytes(content) == source.read_bytes()
    assert not list(private_cache.iterdir())


def test_identity_is_of_all_sources(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "SMALL_BYTES", 1)
    second = source.with_name("second")
    second.write_bytes(b"2")
    calls = []

    def blocks() -> Iterator[Columns]:
        calls.append(1)
        yield (np.frombuffer(source.read_bytes() + second.read_bytes(), np.uint8),)

    read_columns([source, second], blocks)
    second.write_bytes(b"3")
    assert read_columns([source, second], blocks)[0][-1] == ord("3")
    assert len(calls) == 2
