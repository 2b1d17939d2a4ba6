import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import typer
from typer.testing import CliRunner

import tutorial_lib
from tutorial_lib.launcher import cli
from tutorial_lib.models.gan import Generator
from tutorial_lib.training.checkpoint import save_generator

COMMANDS = [
    *(["lab"], ["run"], ["sample"], ["doctor"], ["bench"], ["progress"], ["data"], ["cluster"]),
    *(["data", name] for name in ("install", "list", "download", "verify")),
    *(["cluster", name] for name in ("start", "status", "where", "stop", "preflight")),
]
HEAVY = {"torch", "mpi4py", "ipyparallel", "matplotlib", "papermill", "numpy"}


def invoke(*arguments):
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


def test_the_version_is_the_package_s():
    assert invoke("--version").stdout.strip() == f"gan-tutorial {tutorial_lib.__version__}"


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_explains_itself(command):
    for flag in ("-h", "--help"):
        result = invoke(*command, flag)
        assert result.exit_code == 0
        assert len(result.stdout.splitlines()) > 5


def test_help_imports_nothing_heavy():
    code = f"""
import sys
sys.argv = ["gan-tutorial", "--help"]
from tutorial_lib.launcher.cli import main
try:
    main()
finally:
    heavy = {HEAVY} & set(sys.modules)
    assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "--chapters", "97"],
        ["run", "--chapters", "first"],
        ["sample", "missing.pt", "--out", "grid.png"],
        ["sample", __file__, "--out", "grid.png"],
        ["sample", __file__, "--out", "grid.jpeg"],
        ["run", "--output-dir", f"{__file__}/inside"],
        ["data", "install", "--out", __file__],
        ["data", "verify", "missing"],
        ["data", "verify", __file__],
        ["lab", __file__],
        ["lab", f"{__file__}/inside"],
        ["bench", "nothing"],
        ["cluster", "start", "--profile", "nothing"],
        ["cluster", "stop", "--profile", "nothing"],
        ["run", "--chapters", "3-1"],
    ],
    ids=" ".join,
)
def test_a_mistake_is_one_line_on_stderr_and_exit_status_1(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = invoke(*arguments)
    assert result.exit_code == 1
    assert result.stderr.startswith("gan-tutorial: ")
    assert len(result.stderr.splitlines()) == 1
    assert isinstance(result.exception, SystemExit)


@pytest.mark.parametrize(
    "arguments",
    [
        ["nothing"],
        ["sample"],
        ["run", "--ranks", "0"],
        ["run", "--ranks", "two"],
        ["run", "--data-dir", "missing"],
        ["cluster", "start", "-n", "-1"],
        ["cluster", "start", "--timeout", "0"],
        ["data", "download", "imagenet"],
        ["data", "install", "--format", "csv", "--out", "."],
        ["progress", "--chapter", "3"],
    ],
    ids=" ".join,
)
def test_a_wrong_command_line_is_exit_status_2(arguments):
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.stderr


def test_every_command_and_its_options_are_explained():
    def explained(command, path):
        assert command.help, path
        for parameter in command.params:
            if path and parameter.name not in ("help", "arguments"):
                assert getattr(parameter, "help", None), (path, parameter.name)
        for name, part in getattr(command, "commands", {}).items():
            explained(part, [*path, name])

    explained(typer.main.get_command(cli.app), [])


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize(
    ("line", "offered", "hidden"),
    [("cl", "cluster", "doctor"), ("cluster start --profile m", "mpi_gpu", "slurm")],
)
def test_the_shell_completes_commands_and_profiles(shell, line, offered, hidden):
    line = f"gan-tutorial {line}"
    words = {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    words |= {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
    run = subprocess.run(
        [str(Path(sys.executable).with_name("gan-tutorial"))],
        env={**os.environ, **words, "_GAN_TUTORIAL_COMPLETE": f"complete_{shell}"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert offered in run.stdout, run.stderr
    assert hidden not in run.stdout


def test_progress_is_shown_and_reset(monkeypatch, tmp_path):
    monkeypatch.setenv("GAN_TUTORIAL_STATE_DIR", str(tmp_path))
    (tmp_path / "passed.json").write_text('{"00.1": "2026-01-01"}')
    assert "■□" in invoke("progress").stdout
    assert "■" not in invoke("progress", "--reset").stdout
    assert not (tmp_path / "passed.json").exists()


def test_an_interrupt_is_exit_status_130(monkeypatch, tmp_path):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("tutorial_lib.data.install.install", interrupt)
    result = invoke("data", "install", "--out", tmp_path)
    assert (result.exit_code, result.stderr) == (130, "gan-tutorial: interrupted\n")


def test_a_bug_keeps_its_traceback(monkeypatch, tmp_path):
    def broken(*arguments):
        raise ZeroDivisionError

    monkeypatch.setattr("tutorial_lib.data.install.install", broken)
    assert isinstance(invoke("data", "install", "--out", tmp_path).exception, ZeroDivisionError)


def test_idx_files_are_installed(tmp_path):
    result = invoke("data", "install", "--format", "idx", "--out", tmp_path)
    assert result.exit_code == 0, result.stderr
    assert len(list(tmp_path.glob("*-ubyte"))) == 4


def test_equal_seeds_draw_equal_samples(tmp_path):
    torch.manual_seed(0)
    save_generator(tmp_path / "g.pt", Generator())
    pictures = []
    for seed in (1, 1, 2):
        out = tmp_path / "deep" / f"{len(pictures)}.png"
        result = invoke(
            "sample", tmp_path / "g.pt", "--out", out, "--rows", 2, "--cols", 3, "--seed", seed
        )
        assert result.exit_code == 0, result.stderr
        assert f"6 samples: {out}" in result.stdout
        pictures.append(out.read_bytes())
    assert pictures[0] == pictures[1] != pictures[2]
    assert pictures[0].startswith(b"\x89PNG")


def test_the_first_word_of_lab_is_the_folder_and_the_rest_is_jupyterlab_s(monkeypatch, tmp_path):
    calls = []
    monkeypatch.setattr("tutorial_lib.launcher.lab.prepare", lambda folder: (folder, ["copied"]))
    monkeypatch.setattr(
        "tutorial_lib.launcher.lab.open_lab", lambda folder, flags: calls.append((folder, flags))
    )
    assert invoke("lab", "--no-browser", "--port", "8890").exit_code == 0
    assert "copied" in invoke("lab", tmp_path, "--no-browser").stdout
    assert calls == [
        (None, ["--no-browser", "--port", "8890"]),
        (tmp_path, ["--no-browser"]),
    ]


def test_programs_beside_the_interpreter_are_found_first(monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin")
    for _ in range(2):
        cli._find_programs_beside_python()
        assert cli.os.environ["PATH"] == f"{cli.Path(sys.executable).parent}:/usr/bin"
