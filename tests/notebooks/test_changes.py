"""Chapter 04 shows what it changes in chapter 02; both must really say so."""

import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
DIFF = re.compile(r"```diff\n(.+?)```", re.DOTALL)


def cells(chapter: str, kind: str) -> str:
    notebook = nbformat.read(NOTEBOOKS / f"{chapter}.ipynb", as_version=4)
    return "\n".join(cell.source for cell in notebook.cells if cell.cell_type == kind)


def changes(sign: str) -> Iterator[str]:
    for diff in DIFF.findall(cells("04_distributed_gan", "markdown")):
        for line in diff.splitlines():
            assert line[0] in "+-", line
            if line[0] == sign:
                yield line[1:]


@pytest.mark.parametrize(
    ("sign", "chapter"), [("-", "02_gan_one_node"), ("+", "04_distributed_gan")]
)
def test_lines_of_the_diffs_are_lines_of_the_chapters(sign: str, chapter: str) -> None:
    lines = cells(chapter, "code").splitlines()
    shown = list(changes(sign))
    assert shown
    for line in shown:
        assert line in lines, f"{line!r} is not in {chapter}"


def test_replaced_lines_are_gone() -> None:
    lines = cells("04_distributed_gan", "code").splitlines()
    assert not set(changes("-")) & set(lines)


def test_the_criteria_are_unchanged() -> None:
    pattern = re.compile(r"^def (?:d|g)_criterion.+?\(n,\)$", re.DOTALL | re.MULTILINE)
    old = pattern.findall(cells("02_gan_one_node", "code"))
    assert len(old) == 2
    assert pattern.findall(cells("04_distributed_gan", "code")) == old
