"""``gan-tutorial bench``, on a small benchmarks/ of its own."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tutorial_lib.launcher import bench
from tutorial_lib.launcher.cli import app
from tutorial_lib.launcher.errors import CommandError

HELLO = '"""How long a hello is.\n\nIn letters.\n"""\nprint("| hello | 5 |")\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "benchmarks"
    (folder / "measuring").mkdir(parents=True)
    (folder / "measuring" / "facts.py").write_text('print("- a machine")')
    (folder / "hello.py").write_text(HELLO)
    monkeypatch.setattr(bench, "clone", lambda: tmp_path)
    return folder


def test_what_it_prints_is_kept_with_the_facts(folder: Path) -> None:
    said: list[str] = []
    (path,) = bench.run_benchmarks([], said.append)
    assert path == folder / "results" / "hello.md"
    assert path.read_text() == "# How long a hello is\n\n| hello | 5 |\n\n- a machine\n"
    assert "| hello | 5 |" in said


def test_options_go_to_the_one_that_is_named(folder: Path) -> None:
    (folder / "echo.py").write_text('import sys\nprint(" ".join(sys.argv[1:]))')
    (path,) = bench.run_benchmarks(["echo", "--ranks", "1", "2"], lambda _: None)
    assert "\n--ranks 1 2\n" in path.read_text()
    for words in (["--ranks", "2"], ["echo", "hello", "--ranks", "2"]):
        with pytest.raises(CommandError, match="--ranks: options go to one benchmark"):
            bench.run_benchmarks(words, print)


def test_the_command_hands_options_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[list[str]] = []
    monkeypatch.setattr(bench, "run_benchmarks", lambda words, say: given.append(words))
    result = CliRunner().invoke(app, ["bench", "hello", "--ranks", "1", "2"])
    assert result.exit_code == 0, result.output
    assert given == [["hello", "--ranks", "1", "2"]]


def test_unknown_name(folder: Path) -> None:
    with pytest.raises(CommandError, match=r"no benchmark bye; there are hello"):
        bench.run_benchmarks(["bye"], print)


def test_failure_keeps_the_result_of_before(folder: Path) -> None:
    (path,) = bench.run_benchmarks(["hello"], lambda _: None)
    before = path.read_text()
    (folder / "hello.py").write_text("raise SystemExit(3)")
    with pytest.raises(CommandError, match=r"hello.py failed \(exit status 3\)"):
        bench.run_benchmarks(["hello"], lambda _: None)
    assert path.read_text() == before


def test_without_a_clone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "clone", lambda: None)
    with pytest.raises(CommandError, match="clone of the repository"):
        bench.benchmarks()


def test_every_benchmark_says_what_it_is_for() -> None:
    titles = {name: bench.about(path) for name, path in bench.benchmarks().items()}
    assert "training_step" in titles
    assert all(title != name for name, title in titles.items())
