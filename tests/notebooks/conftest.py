"""Every test with an argument ``path`` runs once for each notebook."""

from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "path" in metafunc.fixturenames:
        paths = sorted(NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))
        metafunc.parametrize("path", paths, ids=lambda path: path.stem)
