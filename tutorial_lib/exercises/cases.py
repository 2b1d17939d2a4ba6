"""The cases of a check: call the answer, compare what it gives with what was expected."""

from __future__ import annotations

import inspect
import math
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


class NotYet(Exception):  # noqa: N818 (a verdict, not an error)
    """The answer fails a case; the message is what the reader is told."""


class NotAttempted(Exception):  # noqa: N818 (a verdict, not an error)
    """The answer is still the stub."""


def is_untouched(answer: Any) -> bool:
    """Tell whether an answer is the stub's ``...``, alone or in every place of a collection."""
    if answer is ...:
        return True
    if isinstance(answer, Mapping):
        return bool(answer) and all(is_untouched(value) for value in answer.values())
    if isinstance(answer, list | tuple | set):
        return bool(answer) and all(is_untouched(value) for value in answer)
    return False


def call(answer: Any, *args: Any, **kwargs: Any) -> Any:
    """Call the reader's function.

    Raises:
        NotAttempted: it returned ``...``, as the stub does.
        NotYet: it is no function, raised, or returned nothing.
    """
    if not callable(answer):
        raise NotYet(f"expected a function, found {brief(answer)}")
    called = f"{getattr(answer, '__name__', 'the function')}({arguments(args, kwargs)})"
    try:
        result = answer(*args, **kwargs)
    except (Exception, SystemExit) as error:
        raise NotYet(f"{called} raised {type(error).__name__}: {error}") from error
    if is_untouched(result):
        raise NotAttempted
    if result is None:
        raise NotYet(f"{called} returned None: is a return missing?")
    return result


def expect(case: str, found: Any, expected: Any, tolerance: float = 0.0, hint: str = "") -> None:
    """Compare one case's result with what was expected.

    Numbers, arrays and tensors are compared by shape and value, whatever their type, so that
    ``3``, ``np.int64(3)`` and ``torch.tensor(3)`` are equal; anything else by ``==``.

    Args:
        case: what was asked, in the reader's words: ``"header(b'...')"``.
        found: what the answer gave.
        expected: what it should have given.
        tolerance: largest absolute difference allowed between numbers.
        hint: added to the message, for a mistake that has a name.

    Raises:
        NotYet: they differ; the message names the case, expected and found.
    """
    problem = difference(found, expected, tolerance)
    if problem:
        raise NotYet(f"{case}: {problem}" + (f". {hint}" if hint else ""))


def require(condition: object, message: str) -> None:
    """Raise NotYet with the message unless the condition holds."""
    if not condition:
        raise NotYet(message)


def difference(found: Any, expected: Any, tolerance: float = 0.0) -> str:
    """Say how two values differ; an empty string when they do not."""
    if isinstance(expected, Mapping):
        return mapping_difference(found, expected, tolerance)
    if isinstance(expected, list | tuple):
        return sequence_difference(found, expected, tolerance)
    told = f"expected {brief(expected)}, found {brief(found)}"
    wanted = as_numbers(expected)
    if wanted is None:
        return "" if bool(found == expected) else told
    given = as_numbers(found)
    if given is None:
        return f"{told}, which is a {type(found).__name__}"
    if given.shape != wanted.shape:
        return f"expected shape {wanted.shape}, found shape {given.shape}"
    if (given.dtype == bool) != (wanted.dtype == bool):
        return told
    apart = ~np.isclose(given, wanted, rtol=0, atol=tolerance, equal_nan=True)
    if not apart.any():
        return ""
    if not wanted.shape:
        return told
    place = tuple(int(i) for i in np.argwhere(apart)[0])
    return f"at {list(place)} expected {wanted[place]:.7g}, found {given[place]:.7g}"


def mapping_difference(found: Any, expected: Mapping[Any, Any], tolerance: float) -> str:
    """Say how two dictionaries differ: the first key whose values do."""
    if not isinstance(found, Mapping):
        return f"expected {brief(expected)}, found {brief(found)}"
    for key, value in expected.items():
        if key not in found:
            return f"{key!r} is missing"
        if found[key] is ...:
            return f"{key!r} is still ..."
        problem = difference(found[key], value, tolerance)
        if problem:
            return f"{key!r}: {problem}"
    extra = [key for key in found if key not in expected]
    return f"{extra[0]!r} was not asked for" if extra else ""


def sequence_difference(found: Any, expected: Sequence[Any], tolerance: float) -> str:
    """Say how two sequences differ: their length, or the first place where they do."""
    try:
        items = list(found)
    except TypeError:
        return f"expected {brief(expected)}, found {brief(found)}"
    if isinstance(found, str) or len(items) != len(expected):
        return f"expected {len(expected)} values, found {brief(found)}"
    for index, (item, value) in enumerate(zip(items, expected, strict=True)):
        if item is ...:
            return f"value {index} is still ..."
        problem = difference(item, value, tolerance)
        if problem:
            return f"value {index}: {problem}"
    return ""


def as_numbers(value: Any) -> np.ndarray[Any, np.dtype[Any]] | None:
    """Return numbers, arrays and tensors as an array; None for what is no such thing."""
    if isinstance(value, str | bytes | Mapping) or value is None:
        return None
    detach = getattr(value, "detach", None)
    try:
        array = np.asarray(detach().cpu() if detach else value)
    except Exception:  # an answer can be any object at all
        return None
    return array if array.dtype.kind in "biufc" else None


def arguments(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Write a call's arguments as short as a reader wants to see them."""
    return ", ".join([*map(brief, args), *(f"{name}={brief(v)}" for name, v in kwargs.items())])


def brief(value: Any) -> str:
    """Return a short text for any value; long arrays and tensors by their shape."""
    if inspect.isroutine(value) or inspect.isclass(value):
        return f"the function {value.__name__}"
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and math.prod(shape) > 6:
        return f"{type(value).__name__} of shape {tuple(shape)}"
    return _short.repr(value)


_short = reprlib.Repr()
_short.maxstring = _short.maxother = 60
