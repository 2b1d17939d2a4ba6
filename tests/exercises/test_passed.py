"""What a reader has passed is remembered, and never in the reader's way."""

from __future__ import annotations

import datetime
import subprocess
import sys
from pathlib import Path

import pytest

from tutorial_lib.exercises import check, passed


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv(passed.STATE_VARIABLE, str(tmp_path / "state"))
    return tmp_path / "state"


def test_a_pass_is_remembered_with_its_day_and_nothing_else_is(capsys):
    check("00.1", lambda n: n)
    check("00.1", ...)
    assert passed.passed() == {}
    begun = datetime.date.today().isoformat()
    check("00.1", lambda n: sum(range(n)))
    found = passed.passed()
    assert list(found) == ["00.1"]
    assert begun <= found["00.1"] <= datetime.date.today().isoformat()
    check("00.1", lambda n: n)  # it stays passed
    assert passed.passed() == found
    passed.forget_passes()
    assert passed.passed() == {}
    passed.forget_passes()


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"00.1": 3}', "\0"])
def test_a_damaged_file_counts_as_none_and_is_replaced(state, content):
    state.mkdir()
    (state / "passed.json").write_text(content)
    assert passed.passed() == {}
    passed.record_pass("02.1")
    assert list(passed.passed()) == ["02.1"]


def test_where_nothing_can_be_written_a_check_says_pass_all_the_same(state, capsys):
    state.write_text("a file where the folder would be")
    check("00.1", lambda n: sum(range(n)))
    assert capsys.readouterr().out == "PASS\n"


def test_several_notebooks_lose_none_of_each_other_s(state):
    code = """
import sys
from tutorial_lib.exercises import passed
passed.LOCK_TIMEOUT_S = 60
for i in range(10):
    passed.record_pass(f"{sys.argv[1]}.{i}")
"""
    writers = [subprocess.Popen([sys.executable, "-c", code, f"0{n}"]) for n in range(3)]
    assert [writer.wait(timeout=100) for writer in writers] == [0, 0, 0]
    assert len(passed.passed()) == 30
    assert [path.name for path in state.iterdir() if path.suffix == ".json"] == ["passed.json"]


def test_the_file_follows_the_platform_s_convention(monkeypatch, tmp_path):
    monkeypatch.delenv(passed.STATE_VARIABLE)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert passed.passed_file() == tmp_path / "gan-tutorial" / "passed.json"
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    assert passed.passed_file().is_relative_to(Path.home())
