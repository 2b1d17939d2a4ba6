"""The verdict on a reader's answer: PASS, NOT YET with the first failing case, or not attempted."""

from __future__ import annotations

import importlib
import pkgutil
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

from tutorial_lib.exercises.cases import NotAttempted, NotYet, is_untouched
from tutorial_lib.exercises.passed import record_pass

Check = Callable[[Any], None]

PASS = "PASS"
NOT_YET = "NOT YET"
NOT_ATTEMPTED = "not attempted"
NO_SUCH_CHECK = "no such check"

LIMIT_S = 20.0
AGAIN_S = 1.0  # code that swallows the first one does not run on for ever

_checks: dict[str, Check] = {}


@dataclass(frozen=True)
class Verdict:
    """What is to be said of an answer.

    Args:
        status: ``PASS``, ``NOT YET``, ``not attempted`` or ``no such check``.
        detail: the first failing case, or what to do next.
    """

    status: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.status}: {self.detail}" if self.detail else self.status


def exercise(name: str) -> Callable[[Check], Check]:
    """Register a check under the exercise's name, as ``@exercise("02.1")``.

    The check gets the reader's answer and calls :func:`~tutorial_lib.exercises.cases.expect`
    for one case after the other. It lives in ``exercises/chapter_02.py``, named after the
    notebook's number.

    Raises:
        ValueError: the name is not of the form NN.N, or is taken; choose another.
    """
    if not re.fullmatch(r"\d\d\.\d+", name):
        raise ValueError(f"exercise {name!r}: expected a name like '02.1'")

    def register(check: Check) -> Check:
        if name in _checks:
            raise ValueError(f"exercise {name!r} has two checks; give one of them another name")
        _checks[name] = check
        return check

    return register


def names() -> list[str]:
    """Return the names of all exercises, chapter by chapter."""
    package = importlib.import_module("tutorial_lib.exercises")
    for module in pkgutil.iter_modules(package.__path__):
        if module.name.startswith("chapter_"):
            importlib.import_module(f"{package.__name__}.{module.name}")
    return sorted(_checks, key=lambda name: [int(part) for part in name.split(".")])


def check(name: str, answer: Any) -> None:
    """Print the verdict on an answer; it never raises, whatever the answer is or does.

    A PASS is noted down for ``gan-tutorial progress``.

    Args:
        name: the exercise, such as ``"02.1"``.
        answer: the reader's function or value. ``...`` means not attempted.

    **Distributed:** runs where it is called, the notebook's kernel; not collective.
    """
    found = verdict(name, answer)
    print(found)
    if found.status == PASS:
        record_pass(name)


def verdict(name: str, answer: Any) -> Verdict:
    """Return the verdict on an answer. An answer that runs for over 20 s is stopped."""
    if name not in names():
        return Verdict(NO_SUCH_CHECK, f"{name!r}; there are {', '.join(names())}")
    if is_untouched(answer):
        return Verdict(NOT_ATTEMPTED)
    try:
        with time_limit(LIMIT_S):
            _checks[name](answer)
    except NotAttempted:
        return Verdict(NOT_ATTEMPTED)
    except NotYet as problem:
        return Verdict(NOT_YET, str(problem))
    except TookTooLong:
        return Verdict(
            NOT_YET, f"it still ran after {LIMIT_S:g} s and was stopped: an endless loop?"
        )
    except (Exception, SystemExit) as error:
        # A check reads parts of an answer, and an answer can be any object at all.
        return Verdict(NOT_YET, f"reading your answer raised {type(error).__name__}: {error}")
    return Verdict(PASS)


class TookTooLong(BaseException):
    """Not an Exception, so that an answer's ``except Exception`` does not swallow it."""


@contextmanager
def time_limit(limit_s: float) -> Iterator[None]:
    """Raise :class:`TookTooLong` in the block after ``limit_s`` seconds, and again until it ends.

    Only the main thread can be interrupted by a timer, and only where the system has one;
    elsewhere the block runs without a limit.
    """
    if (
        not hasattr(signal, "setitimer")
        or threading.current_thread() is not threading.main_thread()
    ):
        yield
        return

    def stop(signum: int, frame: FrameType | None) -> None:
        raise TookTooLong

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, limit_s, AGAIN_S)
    try:
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    finally:  # another alarm may have struck on the way into the first
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
