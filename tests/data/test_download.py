from __future__ import annotations

import gzip
import hashlib
import http.server
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import filelock
import numpy as np
import numpy.typing as npt
import pytest

from tutorial_lib.data import datasets, download
from tutorial_lib.data.datasets import fashion_mnist
from tutorial_lib.data.download import CHUNK_BYTES, cache_dir, fetch
from tutorial_lib.data.errors import DataError
from tutorial_lib.data.folder import IDX_NAMES
from tutorial_lib.data.idx import write_idx

Arrays = tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]
NAME = "file.gz"
CONTENT = np.random.default_rng(0).bytes(300_000)
SUMS = {NAME: hashlib.sha256(CONTENT).hexdigest()}


class Mirror(http.server.ThreadingHTTPServer):
    """A server on this machine, which can behave badly.

    Attributes:
        files: what it has.
        ranges: of each request, the Range header or None.
        break_after: body bytes after which it hangs up, for each request in turn.
        knows_ranges: whether it honours Range headers.
        wait_s: time before it answers.
    """

    daemon_threads = False  # to close waits for them, so that none complains in another test

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = {f"/{NAME}": CONTENT}
        self.ranges: list[str | None] = []
        self.break_after: list[int] = []
        self.knows_ranges = True
        self.wait_s = 0.0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Mirror

    def do_GET(self) -> None:
        self.server.ranges.append(wanted := self.headers.get("Range"))
        time.sleep(self.server.wait_s)
        content = self.server.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        start = 0
        if wanted and self.server.knows_ranges:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(content):
                self.send_error(416)
                return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        stop = start + self.server.break_after.pop(0) if self.server.break_after else None
        self.wfile.write(content[start:stop])

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def make_mirror(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Mirror]]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    running: list[tuple[Mirror, threading.Thread]] = []

    def make() -> Mirror:
        server = Mirror()
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        running.append((server, thread))
        return server

    yield make
    for server, thread in running:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def mirror(make_mirror: Callable[[], Mirror]) -> Mirror:
    return make_mirror()


def assert_downloaded(folder: Path) -> None:
    assert (folder / NAME).read_bytes() == CONTENT
    assert {path.name for path in folder.iterdir()} <= {NAME, ".lock"}


def test_file_is_downloaded_once(mirror: Mirror, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    fetch(SUMS, [mirror.url], folder)
    assert_downloaded(folder)
    fetch(SUMS, [mirror.url], folder)
    assert mirror.ranges == [None]


def test_progress_is_shown(
    mirror: Mirror, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fetch(SUMS, [mirror.url], tmp_path)
    shown = capsys.readouterr().err
    assert f"{NAME}: 100%" in shown
    assert "293k/293k" in shown


def test_damaged_file_is_downloaded_anew(mirror: Mirror, tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(CONTENT[:-1])
    fetch(SUMS, [mirror.url], tmp_path)
    assert_downloaded(tmp_path)


def test_broken_mirrors_are_passed_over(
    make_mirror: Callable[[], Mirror], tmp_path: Path, unused_url: str
) -> None:
    lacking, wrong, good, spare = (make_mirror() for _ in range(4))
    lacking.files.clear()
    wrong.files[f"/{NAME}"] = CONTENT[::-1]
    fetch(SUMS, [unused_url, lacking.url, wrong.url, good.url, spare.url], tmp_path)
    assert_downloaded(tmp_path)
    assert [len(m.ranges) for m in (lacking, wrong, good, spare)] == [1, 1, 1, 0]


@pytest.fixture
def unused_url(make_mirror: Callable[[], Mirror]) -> str:
    """An address at which nobody listens."""
    server = Mirror()
    server.server_close()
    return server.url


def test_broken_transfer_is_continued(mirror: Mirror, tmp_path: Path) -> None:
    mirror.break_after = [6 * CHUNK_BYTES, 3 * CHUNK_BYTES + 100]
    fetch(SUMS, [mirror.url], tmp_path)
    assert_downloaded(tmp_path)
    assert mirror.ranges == [None, f"bytes={6 * CHUNK_BYTES}-", f"bytes={9 * CHUNK_BYTES}-"]


def test_broken_transfer_is_continued_by_the_next_mirror(
    make_mirror: Callable[[], Mirror], tmp_path: Path
) -> None:
    broken, good = make_mirror(), make_mirror()
    broken.break_after = [6 * CHUNK_BYTES, 0]
    fetch(SUMS, [broken.url, good.url], tmp_path)
    assert_downloaded(tmp_path)
    assert good.ranges == [f"bytes={6 * CHUNK_BYTES}-"]


def test_broken_transfer_is_continued_by_the_next_run(mirror: Mirror, tmp_path: Path) -> None:
    mirror.break_after = [6 * CHUNK_BYTES, 0]
    with pytest.raises(DataError, match="the transfer broke off"):
        fetch(SUMS, [mirror.url], tmp_path)
    assert not (tmp_path / NAME).exists()
    fetch(SUMS, [mirror.url], tmp_path)
    assert_downloaded(tmp_path)
    assert mirror.ranges == [None, *[f"bytes={6 * CHUNK_BYTES}-"] * 2]


def test_server_without_ranges_sends_all_again(mirror: Mirror, tmp_path: Path) -> None:
    mirror.knows_ranges = False
    (tmp_path / f"{NAME}.part").write_bytes(CONTENT[:1000])
    fetch(SUMS, [mirror.url], tmp_path)
    assert_downloaded(tmp_path)


@pytest.mark.parametrize("size", [1000, len(CONTENT), len(CONTENT) + 10])
def test_wrong_beginning_from_before_is_thrown_away(
    mirror: Mirror, tmp_path: Path, size: int
) -> None:
    (tmp_path / f"{NAME}.part").write_bytes(b"x" * size)
    fetch(SUMS, [mirror.url], tmp_path)
    assert_downloaded(tmp_path)
    assert mirror.ranges == [f"bytes={size}-", None]


def test_whole_but_unchecked_file_from_before_is_kept(mirror: Mirror, tmp_path: Path) -> None:
    (tmp_path / f"{NAME}.part").write_bytes(CONTENT)
    fetch(SUMS, [mirror.url], tmp_path)
    assert_downloaded(tmp_path)
    assert mirror.ranges == [f"bytes={len(CONTENT)}-"]


def test_wrong_checksum_everywhere_is_an_error_and_leaves_nothing(
    make_mirror: Callable[[], Mirror], tmp_path: Path
) -> None:
    mirrors = [make_mirror(), make_mirror()]
    for server in mirrors:
        server.files[f"/{NAME}"] = CONTENT[::-1]
    with pytest.raises(DataError, match=r"wrong checksum.*wrong checksum") as raised:
        fetch(SUMS, [server.url for server in mirrors], tmp_path)
    assert SUMS[NAME] in str(raised.value)
    assert {path.name for path in tmp_path.iterdir()} == {".lock"}


def test_offline_tells_each_mirrors_trouble_and_the_steps_by_hand(
    mirror: Mirror, unused_url: str, tmp_path: Path
) -> None:
    mirror.files.clear()
    with pytest.raises(DataError, match="by hand") as raised:
        fetch(SUMS, [unused_url, mirror.url], tmp_path)
    message = str(raised.value)
    assert f"{unused_url}/{NAME}: no connection" in message
    assert f"{mirror.url}/{NAME}: HTTP status 404" in message
    assert f"put the files into {tmp_path}" in message


def test_silent_server_is_given_up(
    mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "READ_TIMEOUT_S", 0.1)
    mirror.wait_s = 2
    with pytest.raises(DataError, match="no answer in time"):
        fetch(SUMS, [mirror.url], tmp_path)


def test_many_processes_at_once_download_once(mirror: Mirror, tmp_path: Path) -> None:
    mirror.wait_s = 0.3  # so that all come while the first is at it
    program = (
        "import pathlib, sys; from tutorial_lib.data.download import fetch\n"
        f"fetch({SUMS!r}, [sys.argv[1]], pathlib.Path(sys.argv[2]))"
    )
    command = [sys.executable, "-c", program, mirror.url, str(tmp_path)]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(3)]
    outputs = [process.communicate(timeout=60)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], outputs
    assert_downloaded(tmp_path)
    assert mirror.ranges == [None]
    assert sum(b"100%" in output for output in outputs) == 1


def test_lock_held_for_ever_is_an_error(
    mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "LOCK_TIMEOUT_S", 0.1)
    with (
        filelock.FileLock(tmp_path / ".lock"),
        pytest.raises(DataError, match=r"another process .*remove .*\.lock and run again"),
    ):
        fetch(SUMS, [mirror.url], tmp_path)
    assert mirror.ranges == []


def test_folder_that_cannot_be_made_is_an_error(mirror: Mirror, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"a folder to download into.*XDG_CACHE_HOME"):
        fetch(SUMS, [mirror.url], tmp_path / "file" / "folder")


def test_folder_that_may_not_be_written_is_enough_when_all_is_there(
    mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / NAME).write_bytes(CONTENT)
    monkeypatch.setattr(filelock, "FileLock", lambda *_, **__: pytest.fail("locked"))
    fetch(SUMS, [mirror.url], tmp_path)
    assert mirror.ranges == []


@pytest.mark.parametrize(
    ("platform", "variable", "expected"),
    [
        ("linux", None, "{home}/.cache/gan-tutorial"),
        ("linux", "relative", "{home}/.cache/gan-tutorial"),
        ("linux", "{home}/elsewhere", "{home}/elsewhere/gan-tutorial"),
        ("darwin", None, "{home}/Library/Caches/gan-tutorial"),
    ],
)
def test_cache_is_where_the_platform_wants_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    platform: str,
    variable: str | None,
    expected: str,
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if variable is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", variable.format(home=tmp_path))
    assert cache_dir() == Path(expected.format(home=tmp_path))


def test_fashion_mnist_comes_from_the_mirrors_once(
    mirror: Mirror,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    random_digits: Callable[[int], Arrays],
) -> None:
    mirror.files.clear()
    for names, n in zip(IDX_NAMES, (23, 9), strict=True):
        for name, array in zip(names, random_digits(n), strict=True):
            write_idx(tmp_path / name, array)
            mirror.files[f"/{name}.gz"] = gzip.compress((tmp_path / name).read_bytes())
    sums = {p[1:]: hashlib.sha256(content).hexdigest() for p, content in mirror.files.items()}
    assert sums.keys() == datasets.FASHION_SHA256.keys()
    monkeypatch.setattr(datasets, "FASHION_SHA256", sums)
    monkeypatch.setattr(datasets, "FASHION_MIRRORS", [mirror.url])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for _ in range(2):
        dataset = fashion_mnist()
        assert np.array_equal(dataset.train.images.numpy(), random_digits(23)[0])
        assert np.array_equal(dataset.test.labels.numpy(), random_digits(9)[1])
    assert len(mirror.ranges) == 4
    assert sorted(os.listdir(tmp_path / "cache" / "gan-tutorial" / "fashion-mnist")) == sorted(
        [".lock", *sums]
    )
