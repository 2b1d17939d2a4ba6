"""How far a reader has come: the exercises whose checks said PASS, chapter by chapter."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from tutorial_lib.launcher.resources import Chapter

DONE, OPEN = "■", "□"


def progress(chapters: Sequence[Chapter], passed: Collection[str]) -> Iterator[str]:
    """Yield a line for each chapter with exercises, and one that sums up.

    Args:
        chapters: the chapters.
        passed: names of the exercises passed, such as ``"02.1"``.
    """
    exercises = {chapter: chapter.exercises for chapter in chapters}
    exercises = {chapter: titles for chapter, titles in exercises.items() if titles}
    titles = max((len(chapter.title) for chapter in exercises), default=0)
    marks = max((len(names) for names in exercises.values()), default=0)
    for chapter, names in exercises.items():
        row = "".join(DONE if name in passed else OPEN for name in names)
        still = [f"{name} {title}" for name, title in names.items() if name not in passed]
        text = f"next: {still[0]}" if still else "all passed"
        yield f"{chapter.title:{titles}}  {row:{marks}}  {text}"
    every = [name for names in exercises.values() for name in names]
    yield f"{sum(name in passed for name in every)} of {len(every)} exercises passed"
