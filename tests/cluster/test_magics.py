"""What may stand behind ``%%ranks``."""

from __future__ import annotations

import pytest
from IPython.core.error import UsageError

from tutorial_lib.cluster.magics import parse


@pytest.mark.parametrize(
    ("line", "ranks", "names"),
    [
        ("", None, []),
        ("0", [0], []),
        ("2,0", [0, 2], []),
        ("0 2", [0, 2], []),
        ("--all", None, []),
        ("--push a", None, ["a"]),
        ("--push a,b 1", [1], ["a", "b"]),
        ("1 --push=a", [1], ["a"]),
    ],
)
def test_line_is_read(line: str, ranks: list[int] | None, names: list[str]) -> None:
    assert parse(line) == (ranks, names)


@pytest.mark.parametrize("line", ["x", "--push", "-1", "0,x", "--nope 1", "0-2"])
def test_anything_else_is_refused_with_the_usage(line: str) -> None:
    with pytest.raises(UsageError, match="%%ranks 0,2"):
        parse(line)
