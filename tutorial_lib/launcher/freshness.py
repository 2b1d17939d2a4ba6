"""What a batch run may skip: chapters whose results are there and would come out the same."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tutorial_lib.cluster.profiles import profiles_folder
from tutorial_lib.data.atomic import atomic_write
from tutorial_lib.launcher.resources import PACKAGE, Chapter


def fingerprint(chapter: Chapter, parameters: Mapping[str, Any]) -> str:
    """Return a hash of all that decides what a chapter's run gives.

    That is the chapter and those before it (a later one may use what an earlier one saved), the
    library's sources, the cluster profiles, the versions of Python and of all installed packages,
    and the parameters.

    Args:
        chapter: the chapter.
        parameters: what it is run with.
    """
    digest = hashlib.sha256()
    for path in [*_earlier(chapter), *_library()]:
        digest.update(f"{path.name} {path.stat().st_size}\n".encode())
        digest.update(path.read_bytes())
    packages = sorted({f"{d.name} {d.version}" for d in importlib.metadata.distributions()})
    rest = [sys.version, packages, parameters]
    digest.update(json.dumps(rest, sort_keys=True).encode())
    return digest.hexdigest()


def _earlier(chapter: Chapter) -> list[Path]:
    siblings = sorted(chapter.path.parent.glob("[0-9][0-9]_*.ipynb"))
    return [path for path in siblings if path.name <= chapter.path.name]


def _library() -> Iterator[Path]:
    yield from sorted(PACKAGE.rglob("*.py"))
    yield from sorted(profiles_folder().glob("profile_*/*.py"))


class Ledger:
    """What the output folder holds: for each finished chapter its fingerprint and its files.

    Args:
        output_dir: the folder; the ledger is the file ``.runs.json`` in it.
    """

    def __init__(self, output_dir: Path) -> None:
        self.output_dir = output_dir
        self.path = output_dir / ".runs.json"

    def is_fresh(self, chapter: Chapter, mark: str) -> bool:
        """Tell whether the chapter ended well with this fingerprint and its files are there."""
        run = self._read().get(chapter.name)
        return (
            run is not None
            and run["fingerprint"] == mark
            and all((self.output_dir / name).is_file() for name in run["files"])
        )

    def files(self, chapters: Sequence[Chapter]) -> list[Path]:
        """Return the files that the last good runs of these chapters made."""
        runs = self._read()
        names = {name for c in chapters if c.name in runs for name in runs[c.name]["files"]}
        return [self.output_dir / name for name in sorted(names)]

    def forget(self, chapter: Chapter) -> set[str]:
        """Drop what is known of a chapter, because it is about to run.

        Returns:
            The files that it made so far; it may leave some of them as they are this time.
        """
        runs = self._read()
        run = runs.pop(chapter.name, None)
        if run is None:
            return set()
        self._write(runs)
        return set(run["files"])

    def record(self, chapter: Chapter, mark: str, files: Sequence[str]) -> None:
        """Note that a chapter ended well."""
        self._write({**self._read(), chapter.name: {"fingerprint": mark, "files": list(files)}})

    def _read(self) -> dict[str, Any]:
        try:
            runs: dict[str, Any] = json.loads(self.path.read_text(encoding="utf-8"))
        except (FileNotFoundError, json.JSONDecodeError):
            return {}
        return runs

    def _write(self, runs: dict[str, Any]) -> None:
        with atomic_write(self.path, "w", encoding="utf-8") as file:
            json.dump(runs, file, indent=2)


def snapshot(output_dir: Path) -> dict[str, tuple[int, int]]:
    """Return the visible files of a folder, each with its time and size, to see what changes."""
    files = {}
    for path in output_dir.rglob("*"):
        name = path.relative_to(output_dir)
        if path.is_file() and not any(part.startswith(".") for part in name.parts):
            status = path.stat()
            files[str(name)] = (status.st_mtime_ns, status.st_size)
    return files
