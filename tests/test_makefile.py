"""What make does before there is an environment, and what it clears away."""

import shutil
import subprocess
import sys

import pytest

OLD = """#!/bin/sh
case "$2" in *version_info*) exit 1 ;; *) echo 3.8.1 ;; esac
"""
WITHOUT_VENV = """#!/bin/sh
case "$2" in *ensurepip*) exit 1 ;; *version_info*) exit 0 ;; *) echo 3.12.1 ;; esac
"""


@pytest.fixture
def make(repository, tmp_path):
    """``make(target, ...)`` in a folder that holds what make reads."""
    for name in ("Makefile", "requirements.lock", "pyproject.toml"):
        shutil.copy(repository / name, tmp_path)

    def run(*arguments):
        return subprocess.run(
            ["make", *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=60
        )

    return run


@pytest.fixture
def program(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.write_text(content)
        path.chmod(0o755)
        return str(path)

    return write


def test_make_alone_says_what_it_can_do(make):
    assert "make run" in make().stdout


@pytest.mark.parametrize(
    ("content", "reason"), [(OLD, "is Python 3.8.1"), (WITHOUT_VENV, "lacks the venv module")]
)
def test_an_unfit_python_is_refused_with_the_reason_and_what_to_do(make, program, content, reason):
    result = make(".venv/bin/python", f"PYTHONS=missing {program('unfit', content)}")
    assert result.returncode == 2
    assert reason in result.stderr
    assert "Python 3.11 or newer" in result.stderr
    assert "PYTHON=" in result.stderr


def test_no_python_at_all_is_said_so(make):
    assert "Found no Python" in make(".venv/bin/python", "PYTHONS=missing").stderr


def test_the_first_fit_python_makes_the_environment_once(make, program, tmp_path):
    pythons = f"PYTHONS={program('old', OLD)} {sys.executable}"
    assert make(".venv/bin/python", pythons).returncode == 0
    assert (tmp_path / ".venv/pyvenv.cfg").is_file()
    assert "up to date" in make(".venv/bin/python", pythons).stdout


def test_cleaning_leaves_the_reader_s_own_copies(make, tmp_path):
    for name in ("lab/notebooks/00.ipynb", "outputs/a", ".venv/b", "tests/__pycache__/c"):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.touch()
    make("clean")
    left = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    assert left == {"Makefile", "requirements.lock", "pyproject.toml", "lab/notebooks/00.ipynb"}
