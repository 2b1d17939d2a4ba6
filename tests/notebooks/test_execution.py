"""Every notebook from top to bottom, in one run: as it is, and with its exercises solved.

Each stub is followed by its check, which must say "not attempted"; then come the solution and the
check once more, which must say PASS. Since exercises stand at the end, all that is before them
runs exactly as for a reader who skips them.
"""

import ast
import os
import re
import signal
import subprocess
import sys
from copy import deepcopy
from pathlib import Path

import nbformat
import psutil
import pytest
from nbformat import NotebookNode

LIMIT_S = 280
FAST = {"minibatches": 40, "num_engines": 2}
FENCE = re.compile(r"```python\n(.+?)```", re.DOTALL)


def tags(cell: NotebookNode) -> list[str]:
    return cell.metadata.get("tags", [])


def with_solutions(notebook: NotebookNode) -> NotebookNode:
    """After each stub's check, insert its solution and the check once more."""
    cells: list[NotebookNode] = []
    for cell in notebook.cells:
        cells.append(cell)
        if "solution" in tags(cell):
            solved, check = deepcopy(cells[-3]), deepcopy(cells[-2])
            solved.source = FENCE.search(cell.source)[1]
            solved.id += "-solved"
            check.id += "-solved"
            cells += [solved, check]
    notebook.cells = cells
    return notebook


def parameters(notebook: NotebookNode, output_dir: Path) -> dict[str, object]:
    """Fast values for those parameters that the notebook has."""
    (cell,) = [cell for cell in notebook.cells if "parameters" in tags(cell)]
    names = {target.id for line in ast.parse(cell.source).body for target in line.targets}
    assert "output_dir" in names
    return {name: value for name, value in FAST.items() if name in names} | {
        "output_dir": str(output_dir)
    }


def papermill(source: Path, target: Path, values: dict[str, object], folder: Path) -> None:
    """Run papermill as its users do; on a time-out, interrupt it so that engines end too."""
    command = [sys.executable, "-m", "papermill", str(source), str(target), "--no-progress-bar"]
    for name, value in values.items():
        command += ["-p", name, str(value)]
    with (folder / "papermill.log").open("w+") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={
                **os.environ,
                "IPYTHONDIR": str(folder / "ipython"),
                "GAN_TUTORIAL_RUNTIME_DIR": str(folder / "runtime"),  # joins no other's ranks
                "GAN_TUTORIAL_STATE_DIR": str(folder / "state"),  # passes for no reader
            },
        )
        try:
            process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            process.wait(30)
        log.seek(0)
        assert process.returncode == 0, log.read()[-6000:]


def text_of(cell: NotebookNode) -> str:
    return "".join(output.get("text", "") for output in cell.outputs)


def processes_of(folder: Path) -> list[str]:
    """Command lines of all running processes that name the folder."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        line = " ".join(process.info["cmdline"] or [])
        if str(folder) in line and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(line)
    return found


@pytest.mark.notebooks
@pytest.mark.engines
@pytest.mark.timeout(LIMIT_S + 40)
def test_notebook_runs_and_its_solutions_pass(path, tmp_path):
    notebook = with_solutions(nbformat.read(path, as_version=4))
    source, target = tmp_path / path.name, tmp_path / "executed.ipynb"
    nbformat.write(notebook, source)
    papermill(source, target, parameters(notebook, tmp_path / "outputs"), tmp_path)
    executed = nbformat.read(target, as_version=4)

    checks = [cell for cell in executed.cells if "check" in tags(cell)]
    assert checks
    for cell in checks:
        expected = "PASS" if cell.id.endswith("-solved") else "not attempted"
        assert text_of(cell).strip() == expected, cell.source

    for cell in executed.cells:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            assert not any(kind.startswith("image/") for kind in data), f"{cell.id}: no words"
            for image in re.findall(r"<img [^>]*", data.get("text/html", "")):
                assert re.search(r'alt="[^"]{10,}"', image), f"{cell.id}: no words"
            assert "Warning" not in output.get("text", ""), output.text

    assert not processes_of(tmp_path)
