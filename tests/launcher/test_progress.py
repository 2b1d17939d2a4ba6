"""What ``gan-tutorial progress`` tells."""

from __future__ import annotations

from tutorial_lib.exercises.verdict import names
from tutorial_lib.launcher.progress import progress
from tutorial_lib.launcher.resources import all_chapters


def test_every_exercise_is_counted_and_the_next_one_named(repository):
    chapters = all_chapters(repository / "notebooks")
    *lines, last = progress(chapters, [])
    assert [line.split("  ")[0] for line in lines] == [chapter.title for chapter in chapters]
    every = [name for chapter in chapters for name in chapter.exercises]
    assert set(every) <= set(names())
    assert "□□" in lines[0]
    assert "next: 00.1 the sum of all ranks" in lines[0]
    assert last == f"0 of {len(every)} exercises passed"


def test_what_is_passed_is_marked(repository):
    chapters = all_chapters(repository / "notebooks")[:2]
    first, second, last = progress(chapters, ["00.1", "00.2", "01.2", "77.7"])
    assert "■■  all passed" in first
    assert "□■  next: 01.1 " in second
    assert last == "3 of 4 exercises passed"


def test_a_chapter_without_exercises_is_left_out(write_chapter):
    assert list(progress([write_chapter("01_a")], [])) == ["0 of 0 exercises passed"]
