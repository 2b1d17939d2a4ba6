"""Tiles of JupyterLab's launcher, as the extension that shows them reads them."""

from __future__ import annotations

import shlex
from pathlib import Path
from xml.etree import ElementTree

import nbformat
from jupyter_app_launcher.utils import parse_config

from tutorial_lib.launcher import tiles
from tutorial_lib.launcher.resources import all_chapters


def read(folder, working_folder):
    written = tiles.write_tiles(folder, working_folder)
    return parse_config(str(folder), str(written))


def test_a_tile_for_each_chapter_opens_it_in_the_working_folder(repository, tmp_path):
    found = [t for t in read(tmp_path, repository) if t["type"] == "jupyterlab-commands"]
    chapters = all_chapters(repository / "notebooks")
    for tile, chapter in zip(found, chapters, strict=True):
        assert chapter.title == f"{chapter.number:02} · {tile['title']}"
        (command,) = tile["source"]
        assert command["id"] == "docmanager:open"
        assert repository / command["args"]["path"] == chapter.path
        assert ElementTree.fromstring(tile["icon"])[1].text == f"{chapter.number:02}"
        assert tile["description"].endswith(".")


def test_tiles_for_the_ranks_run_the_command_in_a_terminal(repository, tmp_path):
    found = [tile for tile in read(tmp_path, repository) if tile["type"] == "terminal"]
    assert [tile["title"] for tile in found] == ["Start engines", "Status", "Stop engines"]
    for tile, verb in zip(found, ("start", "status", "stop"), strict=True):
        program, *words = shlex.split(tile["source"])
        assert Path(program).is_file()
        assert words == ["cluster", verb]
        assert tile["cwd"] == str(repository)
        ElementTree.fromstring(tile["icon"])


def test_a_reader_s_broken_notebook_has_a_tile_too(tmp_path):
    folder = tmp_path / "notebooks"
    folder.mkdir()
    (folder / "00_half.ipynb").write_text('{"cells": [')
    (folder / "01_empty.ipynb").write_text('{"cells": []}')
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1")])
    nbformat.write(notebook, folder / "02_code.ipynb")
    titles = [tile["title"] for tile in read(tmp_path / "tiles", tmp_path)]
    assert titles[:3] == ["00_half", "01_empty", "02_code"]
