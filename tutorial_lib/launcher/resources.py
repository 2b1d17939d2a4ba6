"""Where the notebooks are, and which of them make a walkthrough."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import tutorial_lib
from tutorial_lib.launcher.errors import CommandError

PACKAGE = Path(tutorial_lib.__file__).resolve().parent


@dataclass(frozen=True)
class Chapter:
    """A notebook of the walkthrough, ``NN_topic.ipynb``."""

    path: Path

    @property
    def name(self) -> str:
        """Its file name without the ending, such as ``02_gan_one_node``."""
        return self.path.stem

    @property
    def number(self) -> int:
        """Its place in the walkthrough."""
        return int(self.name[:2])

    @property
    def title(self) -> str:
        """Its heading, such as ``02 · A GAN on one node``; its name where it has none."""
        return self._first_cell()[0].removeprefix("# ") or self.name

    @property
    def promise(self) -> str:
        """What the sentence below its heading promises; empty where there is none."""
        return next((line for line in self._first_cell()[1:] if line), "")

    @property
    def exercises(self) -> dict[str, str]:
        """Its exercises' titles by their names, such as ``02.1``, in order."""
        return {
            name: title
            for cell in self._cells()
            for name, title in re.findall(r"^### Exercise (\d\d\.\d+): (.+)$", cell, re.MULTILINE)
        }

    def _first_cell(self) -> list[str]:
        """Return the lines of its first cell, at least one."""
        return next(iter(self._cells()), "").splitlines() or [""]

    def _cells(self) -> list[str]:
        """Return the texts of its cells, those of code being empty."""
        try:
            cells = json.loads(self.path.read_text(encoding="utf-8"))["cells"]
            return ["".join(c["source"]) if c["cell_type"] == "markdown" else "" for c in cells]
        except (json.JSONDecodeError, LookupError, TypeError):
            return []  # half a file, or a reader's own


def clone() -> Path | None:
    """Return the repository that this package runs from, or None when it was installed."""
    root = PACKAGE.parent
    has_parts = (root / "notebooks").is_dir() and (root / "pyproject.toml").is_file()
    return root if has_parts else None


def notebooks_folder() -> Path:
    """Return the folder of the walkthrough's notebooks: the clone's, else the package's."""
    return (clone() or PACKAGE / "share") / "notebooks"


def all_chapters(folder: Path | None = None) -> list[Chapter]:
    """Return the chapters in order.

    Args:
        folder: where the notebooks are; None for the walkthrough's own.

    Raises:
        CommandError: there are none; the installation lacks its notebooks, so install it anew.
    """
    folder = folder or notebooks_folder()
    chapters = [Chapter(path) for path in sorted(folder.glob("[0-9][0-9]_*.ipynb"))]
    if not chapters:
        raise CommandError(f"no notebooks in {folder}: install gan-tutorial again")
    return chapters


def select_chapters(choice: str, chapters: list[Chapter]) -> list[Chapter]:
    """Return the chapters that a choice such as ``00-05``, ``4``, ``1,3-5`` or ``all`` names.

    Args:
        choice: numbers and ranges with commas between them, or ``all``.
        chapters: those to choose from.

    Raises:
        CommandError: the choice cannot be read, or names a chapter that there is not.
    """
    if choice.strip() == "all":
        return chapters
    wanted: set[int] = set()
    for part in choice.split(","):
        match = re.fullmatch(r"\s*(\d{1,2})\s*(?:-\s*(\d{1,2})\s*)?", part)
        if match is None:
            raise CommandError(f"--chapters {choice}: write 00-05, or 4, or 1,3-5, or all")
        first, last = int(match[1]), int(match[2] or match[1])
        if first > last:
            raise CommandError(f"--chapters {choice}: {first:02} comes after {last:02}")
        between = {c.number for c in chapters if first <= c.number <= last}
        if first not in between or last not in between:
            there_are = ", ".join(f"{c.number:02}" for c in chapters)
            raise CommandError(f"--chapters {choice}: the chapters are {there_are}")
        wanted |= between
    return [c for c in chapters if c.number in wanted]
