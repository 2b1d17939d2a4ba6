from __future__ import annotations

import errno
import os
import re
import signal
import stat
from pathlib import Path
from typing import Any

import pytest

from tutorial_lib.data.atomic import TEMPORARY_SUFFIX, atomic_write


def test_file_appears_whole_and_only_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file.txt"
    with atomic_write(path, "w", encoding="utf-8") as file:
        file.write("half")
        file.flush()
        assert not path.exists()
        file.write(" and half")
    assert path.read_text(encoding="utf-8") == "half and half"
    assert list(path.parent.iterdir()) == [path]


def test_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def write_half() -> None:
        with atomic_write(path) as file:
            file.write(b"new")
            raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        write_half()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def refuse_nameless(path: str, flags: int, *arguments: Any, original: Any = os.open) -> int:
    if flags & os.O_TMPFILE == os.O_TMPFILE:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")
    return original(path, flags, *arguments)


KILLED = """
import os, signal, sys
from tutorial_lib.data.atomic import atomic_write

with atomic_write(sys.argv[1]) as file:
    file.write(b"half" * 100_000)
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_killed_writer_leaves_the_old_file_and_nothing_else(tmp_path: Path, python) -> None:
    try:
        os.close(os.open(tmp_path, os.O_TMPFILE | os.O_WRONLY))
    except (AttributeError, OSError) as error:
        pytest.skip(f"the file system has no nameless files ({error})")
    path = tmp_path / "file"
    path.write_bytes(b"old")
    assert python("-c", KILLED, path, check=False).returncode == -signal.SIGKILL
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("missing", ["in Python", "in the file system"])
def test_system_without_nameless_files_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    if missing == "in Python":
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    else:
        monkeypatch.setattr(os, "open", refuse_nameless)
    path = tmp_path / "file"
    for content in (b"old", b"new"):
        with atomic_write(path) as file:
            file.write(content)
            (temporary,) = {*tmp_path.iterdir()} - {path}
            assert re.fullmatch(rf"\.file{TEMPORARY_SUFFIX}", temporary.name)
        assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_permissions_are_those_of_any_new_file(tmp_path: Path) -> None:
    (tmp_path / "usual").touch()
    with atomic_write(tmp_path / "atomic"):
        pass
    modes = {stat.S_IMODE(os.stat(tmp_path / name).st_mode) for name in ("usual", "atomic")}
    assert len(modes) == 1


def test_symbolic_link_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"old")
    (tmp_path / "link").symlink_to("target")
    with atomic_write(tmp_path / "link") as file:
        file.write(b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes() == b"new"


def test_pipe_or_device_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with atomic_write(pipe) as file:
            file.write(b"text")
        assert os.read(reader, 10) == b"text"
    finally:
        os.close(reader)
    assert pipe.is_fifo()


def test_folder_is_not_replaced(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError), atomic_write(tmp_path):
        pass
