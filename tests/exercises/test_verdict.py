import re
import subprocess
import sys
import threading
import time

import pytest

from tutorial_lib.exercises import check
from tutorial_lib.exercises import verdict as verdict_module
from tutorial_lib.exercises.cases import call, expect
from tutorial_lib.exercises.verdict import (
    TookTooLong,
    Verdict,
    exercise,
    names,
    time_limit,
    verdict,
)


@pytest.fixture
def doubling(monkeypatch):
    """An exercise 99.1: double a number."""
    names()  # the chapters register before the copy is made
    monkeypatch.setattr(verdict_module, "_checks", dict(verdict_module._checks))

    @exercise("99.1")
    def double(answer):
        for n in (0, 1, 5):
            expect(f"n = {n}", call(answer, n), 2 * n)

    return "99.1"


def test_right_answer(doubling):
    assert str(verdict(doubling, lambda n: n + n)) == "PASS"


def test_wrong_answer_is_told_the_first_failing_case(doubling):
    assert str(verdict(doubling, lambda n: n * n)) == "NOT YET: n = 1: expected 2, found 1"


@pytest.mark.parametrize("stub", [..., lambda n: ...])
def test_stub(doubling, stub):
    assert str(verdict(doubling, stub)) == "not attempted"


def forever(n):
    while True:
        try:
            time.sleep(0.01)
        except Exception:  # what a reader may well write
            continue


def deep(n):
    return deep(n)


def leave(n):
    sys.exit(3)


class Hostile:
    def __eq__(self, other):
        raise RuntimeError("no comparing")

    __hash__ = None

    def __repr__(self):
        raise RuntimeError("no looking")

    @property
    def shape(self):
        raise RuntimeError("no shape")

    def __array__(self, *args, **kwargs):
        raise RuntimeError("no array")


@pytest.mark.parametrize(
    "answer",
    [forever, deep, leave, Hostile(), lambda n: Hostile(), None, "x", 3, lambda: 0, lambda n: "x"],
)
def test_no_answer_raises(doubling, answer, capsys, monkeypatch):
    monkeypatch.setattr(verdict_module, "LIMIT_S", 0.2)
    check(doubling, answer)
    assert capsys.readouterr().out.startswith("NOT YET: ")


def test_interrupt_gets_through(doubling):
    def interrupted(n):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        verdict(doubling, interrupted)


def test_unknown_name_tells_the_known_ones(capsys):
    check("77.7", 1)
    assert re.search(r"no such check: '77\.7'; there are 00\.1, ", capsys.readouterr().out)


@pytest.mark.parametrize("name", ["2.1", "02-1", "02.x"])
def test_names_have_one_form(name):
    with pytest.raises(ValueError, match=r"like '02\.1'"):
        exercise(name)


def test_a_name_is_taken_once(doubling):
    with pytest.raises(ValueError, match="two checks"):
        exercise(doubling)(print)


def test_names_are_in_order():
    assert names() == sorted(names())
    assert {"00.1", "01.1", "02.1"} <= set(names())


def test_timer_is_put_away():
    with time_limit(0.05):
        pass
    time.sleep(0.1)


def test_code_that_swallows_the_first_alarm_is_stopped(monkeypatch):
    def stubborn():
        try:
            time.sleep(60)
        except TookTooLong:
            time.sleep(60)

    monkeypatch.setattr(verdict_module, "AGAIN_S", 0.5)
    with pytest.raises(TookTooLong), time_limit(0.05):
        stubborn()


def test_beside_the_main_thread_there_is_no_limit_but_a_verdict(doubling):
    found: list[Verdict] = []
    thread = threading.Thread(target=lambda: found.append(verdict(doubling, lambda n: 2 * n)))
    thread.start()
    thread.join()
    assert str(found[0]) == "PASS"


def test_room_is_cheap_to_import():
    code = "import tutorial_lib.exercises, sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
