"""Batch runs of small notebooks, in real kernels."""

import os
import signal
import subprocess
import sys
import time

import nbformat
import psutil
import pytest
from filelock import FileLock

from tutorial_lib.launcher.batch import BatchResult, run_notebooks
from tutorial_lib.launcher.errors import CommandError
from tutorial_lib.launcher.report import report

WRITE = "import pathlib; pathlib.Path(output_dir, {0!r}).write_text(str({1}))"
INTERRUPTIBLE = """
import signal, sys
from pathlib import Path
from tutorial_lib.launcher.batch import run_notebooks
from tutorial_lib.launcher.resources import Chapter
run_notebooks([Chapter(Path(sys.argv[1]))], Path(sys.argv[2]))
"""


@pytest.fixture
def outputs(tmp_path, jupyter_home):
    return tmp_path / "outputs"


@pytest.fixture
def said():
    return []


def names(result):
    return sorted(path.name for path in result.files)


def test_a_chapter_leaves_its_notebook_its_page_and_what_it_wrote(write_chapter, outputs, said):
    chapter = write_chapter("01_a", WRITE.format("n.txt", "num_engines * minibatches"), "6 * 7")
    result = run_notebooks([chapter], outputs, {"num_engines": 5}, say=said.append)
    assert names(result) == ["01_a.html", "01_a.ipynb", "n.txt"]
    assert (outputs / "n.txt").read_text() == "15"
    executed = nbformat.read(outputs / "01_a.ipynb", as_version=4)
    assert executed.cells[-1].outputs[0].data["text/plain"] == "42"
    assert "42" in (outputs / "01_a.html").read_text()
    assert "done in" in said[0]


def test_what_is_up_to_date_is_skipped_until_something_changes(
    write_chapter, library, outputs, said
):
    chapters = [write_chapter("01_a", WRITE.format("a", 1)), write_chapter("02_b")]
    assert run_notebooks(chapters, outputs, say=said.append).ran == ["01_a", "02_b"]
    again = run_notebooks(chapters, outputs, say=said.append)
    assert again.ran == []
    assert names(again) == ["01_a.html", "01_a.ipynb", "02_b.html", "02_b.ipynb", "a"]
    assert [line.split("  ")[-1] for line in said[2:]] == ["up to date"] * 2
    (outputs / "a").unlink()
    assert run_notebooks(chapters, outputs, say=said.append).ran == ["01_a"]
    assert run_notebooks(chapters, outputs, {"minibatches": 9}, say=said.append).ran == [
        "01_a",
        "02_b",
    ]
    assert run_notebooks(
        chapters[1:], outputs, {"minibatches": 9}, force=True, say=said.append
    ).ran == ["02_b"]


def test_a_file_that_a_chapter_finds_and_leaves_stays_its_file(write_chapter, outputs, said):
    keep = "p = pathlib.Path(output_dir, 'once'); p.exists() or p.touch()"
    chapter = write_chapter("01_a", "import pathlib", keep)
    for _ in range(2):
        result = run_notebooks([chapter], outputs, force=True, say=said.append)
        assert "once" in names(result)


def test_a_failing_chapter_is_explained_and_the_others_still_run(write_chapter, outputs, said):
    bad = write_chapter("01_bad", "print('before')", "number = 1\nnumber / 0", "print('after')")
    good = write_chapter("02_good")
    result = run_notebooks([bad, good], outputs, say=said.append)
    assert result.ran == ["02_good"]
    assert list(result.failures) == ["01_bad"]
    text = "\n".join(report(result, outputs))
    partial = outputs / "01_bad.failed.ipynb"
    for part in ("01_bad failed in cell [", "ZeroDivisionError", "    number / 0", str(partial)):
        assert part in text
    assert "before" in partial.read_text()
    assert not (outputs / "01_bad.partial.ipynb").exists()
    write_chapter("01_bad", "print('mended')")
    assert "01_bad" in run_notebooks([bad], outputs, say=said.append).ran
    assert not partial.exists()


def test_a_dying_kernel_is_a_failure_too(write_chapter, outputs, said):
    chapter = write_chapter("01_dies", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    failure = run_notebooks([chapter], outputs, say=said.append).failures["01_dies"]
    assert "kernel died" in failure.error
    assert failure.notebook.exists()


def test_a_parameter_that_no_chapter_has_is_a_mistake(write_chapter, outputs):
    with pytest.raises(CommandError, match=r"minibatchs.*minibatches"):
        run_notebooks([write_chapter("01_a")], outputs, {"minibatchs": 3})


def test_two_runs_do_not_share_a_folder(write_chapter, outputs):
    outputs.mkdir()
    with FileLock(outputs / ".lock"), pytest.raises(CommandError, match="another run"):
        run_notebooks([write_chapter("01_a")], outputs)


def test_results_that_cannot_be_written_are_a_mistake(write_chapter, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(CommandError, match="cannot write to"):
        run_notebooks([write_chapter("01_a")], tmp_path / "file" / "outputs")


def test_a_report_sorts_files_by_kind(tmp_path):
    files = [tmp_path / name for name in ("01.ipynb", "01.html", "metrics.json", "g.png", "g.pt")]
    lines = list(report(BatchResult(files, []), tmp_path))
    assert str(tmp_path) in lines[0]
    assert [line.split()[-1] for line in lines[1:]] == [path.name for path in files]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_nothing_behind(write_chapter, outputs, jupyter_home, number):
    code = WRITE.format("pid", "__import__('os').getpid()") + "; import time; time.sleep(60)"
    chapter = write_chapter("01_long", code)
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTIBLE, chapter.path, outputs],
        env=jupyter_home,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while not (outputs / "pid").exists() or not (outputs / "pid").read_text():
        assert time.monotonic() < deadline, process.communicate()[0]
        time.sleep(0.05)
    kernel = psutil.Process(int((outputs / "pid").read_text()))
    os.killpg(process.pid, number)
    process.communicate(timeout=30)
    assert process.returncode != 0
    kernel.wait(timeout=5)
    (outputs / "pid").unlink()
    assert [p.name for p in outputs.iterdir() if not p.name.startswith(".")] == []
