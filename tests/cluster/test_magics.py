"""What may stand behind ``%%ranks``."""

from __future__ import annotations

import pytest
from IPython.core.error import UsageError

from tutorial_lib.cluster.magics import parse


@pytest.mark.parametrize(
    ("line", "ranks", "names", "is_unfolded", "is_setup"),
    [
        ("", None, [], False, False),
        ("0", [0], [], False, False),
        ("2,0", [0, 2], [], False, False),
        ("0 2", [0, 2], [], False, False),
        ("--all", None, [], True, False),
        ("--push a", None, ["a"], False, False),
        ("--push a,b 1", [1], ["a", "b"], False, False),
        ("1 --push=a", [1], ["a"], False, False),
        ("--setup --push a", None, ["a"], False, True),
    ],
)
def test_line_is_read(
    line: str, ranks: list[int] | None, names: list[str], is_unfolded: bool, is_setup: bool
) -> None:
    assert parse(line) == (ranks, names, is_unfolded, is_setup)


@pytest.mark.parametrize("line", ["x", "--push", "-1", "0,x", "--nope 1", "0-2"])
def test_anything_else_is_refused_with_the_usage(line: str) -> None:
    with pytest.raises(UsageError, match="%%ranks 0,2"):
        parse(line)
