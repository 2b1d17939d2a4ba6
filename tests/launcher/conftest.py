"""A walkthrough of the test's own: small notebooks in a temporary folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest

from tutorial_lib.launcher import freshness
from tutorial_lib.launcher.resources import Chapter

PARAMETERS = 'num_engines = 2\nminibatches = 3\noutput_dir = "outputs"'

Write = Callable[..., Chapter]


@pytest.fixture
def write_chapter(tmp_path: Path) -> Write:
    """``write_chapter("01_name", "code", ...)`` makes a notebook with a parameters cell."""

    def write(name: str, *cells: str) -> Chapter:
        notebook = nbformat.v4.new_notebook()
        parameters = nbformat.v4.new_code_cell(PARAMETERS)
        parameters.metadata["tags"] = ["parameters"]
        notebook.cells = [parameters, *map(nbformat.v4.new_code_cell, cells)]
        notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
        folder = tmp_path / "notebooks"
        folder.mkdir(exist_ok=True)
        nbformat.write(notebook, folder / f"{name}.ipynb")
        return Chapter(folder / f"{name}.ipynb")

    return write


@pytest.fixture
def jupyter_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Keep what Jupyter and IPython write out of the home folder."""
    (tmp_path / "home").mkdir()
    folders = {
        name: str(tmp_path / "home" / name.lower())
        for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")
    }
    for name, folder in folders.items():
        monkeypatch.setenv(name, folder)
    return {**os.environ, **folders}


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A library of the test's own, which nobody edits while the test runs."""
    folder = tmp_path / "library"
    folder.mkdir()
    (folder / "gan.py").write_text("a = 1")
    monkeypatch.setattr(freshness, "PACKAGE", folder)
    return folder
