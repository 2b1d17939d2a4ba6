"""JupyterLab's launcher: a tile for each chapter, and some for the ranks."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tutorial_lib.data.atomic import atomic_write
from tutorial_lib.launcher.resources import PACKAGE, Chapter, all_chapters

FOLDER_VARIABLE = "JUPYTER_APP_LAUNCHER_PATH"  # where jupyter-app-launcher looks for tiles
CATALOG = "GAN tutorial"
ICONS = PACKAGE / "launcher" / "icons"
COMMANDS = {
    "start": ("Start engines", "Start two MPI ranks that notebooks join, and that outlive them"),
    "status": ("Status", "List the ranks that run on this machine"),
    "stop": ("Stop engines", "Stop the ranks that run on their own"),
}


def write_tiles(folder: Path, working_folder: Path) -> Path:
    """Write the tiles for the chapters of a working folder, with their icons.

    Args:
        folder: where to write; jupyter-app-launcher gets it as ``JUPYTER_APP_LAUNCHER_PATH``.
        working_folder: what JupyterLab shows; its chapters are those in ``notebooks``.

    Returns:
        The list of tiles, in JSON, which is YAML too.
    """
    chapters = all_chapters(working_folder / "notebooks")
    tiles = [*map(_chapter_tile, chapters), *_command_tiles(working_folder)]
    picture = (ICONS / "chapter.svg").read_text(encoding="utf-8")
    for chapter in chapters:
        with atomic_write(folder / f"{chapter.number:02}.svg", "w", encoding="utf-8") as file:
            file.write(picture.replace("NN", f"{chapter.number:02}"))
    path = folder / "jp_app_launcher.yaml"
    with atomic_write(path, "w", encoding="utf-8") as file:
        json.dump(tiles, file, ensure_ascii=False, indent=2)
    return path


def _chapter_tile(chapter: Chapter) -> dict[str, Any]:
    # Paths of notebooks are relative to what JupyterLab shows.
    opens = {"path": f"notebooks/{chapter.path.name}"}
    return {
        "title": chapter.title.partition(" · ")[2] or chapter.title,  # the icon has the number
        "description": chapter.promise,
        "type": "jupyterlab-commands",
        "source": [{"label": chapter.title, "id": "docmanager:open", "args": opens}],
        "icon": f"{chapter.number:02}.svg",
        "catalog": CATALOG,
    }


def _command_tiles(working_folder: Path) -> Iterator[dict[str, Any]]:
    # With its folder, since the terminal's shell may set a PATH of its own.
    program = shlex.quote(str(Path(sys.executable).with_name("gan-tutorial")))
    for command, (title, description) in COMMANDS.items():
        yield {
            "title": title,
            "description": description,
            "type": "terminal",
            "source": f"{program} cluster {command}",
            "cwd": str(working_folder),
            "args": {"reuse": True},
            "icon": str(ICONS / f"{command}.svg"),
            "catalog": CATALOG,
        }
