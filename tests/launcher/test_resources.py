from pathlib import Path

import pytest

from tutorial_lib.launcher.errors import CommandError
from tutorial_lib.launcher.resources import Chapter, all_chapters, clone, select_chapters

CHAPTERS = [Chapter(Path(f"{n:02}_topic.ipynb")) for n in (0, 1, 2, 3, 4, 5, 12)]


@pytest.mark.parametrize(
    ("choice", "numbers"),
    [
        ("00-05", [0, 1, 2, 3, 4, 5]),
        ("4", [4]),
        ("04", [4]),
        ("1,3-5", [1, 3, 4, 5]),
        (" 5, 1 ", [1, 5]),
        ("3-12", [3, 4, 5, 12]),
        ("all", [0, 1, 2, 3, 4, 5, 12]),
    ],
)
def test_chapters_come_in_order_whatever_the_choice_looks_like(choice, numbers):
    assert [c.number for c in select_chapters(choice, CHAPTERS)] == numbers


@pytest.mark.parametrize("choice", ["", "x", "1-", "7", "0-99", "5-1", "1;2", "-1"])
def test_a_choice_that_names_no_chapter_is_an_error_in_one_line(choice):
    with pytest.raises(CommandError, match="--chapters") as error:
        select_chapters(choice, CHAPTERS)
    assert "\n" not in str(error.value)


def test_only_numbered_notebooks_are_chapters(tmp_path):
    for name in ("02_b.ipynb", "00_a.ipynb", "scratch.ipynb", "README.md"):
        (tmp_path / name).touch()
    assert [c.name for c in all_chapters(tmp_path)] == ["00_a", "02_b"]


def test_a_folder_without_chapters_is_an_error(tmp_path):
    with pytest.raises(CommandError, match="no notebooks"):
        all_chapters(tmp_path)


def test_the_tests_run_from_a_clone(repository):
    assert clone() == repository
