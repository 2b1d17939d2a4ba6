"""From a reader's answer to a verdict."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tutorial_lib.exercises.verdict import check as check

__all__ = ["check"]


def __getattr__(name: str) -> Any:
    if name == "check":
        from tutorial_lib.exercises.verdict import check

        return check
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
