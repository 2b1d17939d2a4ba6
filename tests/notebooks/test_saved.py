"""What a saved notebook holds: the final state, the same each time but for figures of time."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = [pytest.mark.notebooks, pytest.mark.timeout(400)]

CELLS = [
    "from tutorial_lib.cluster import Cluster\nranks = Cluster(n=2).start()",
    """%%ranks
from tutorial_lib.training.basic_gan import BasicGan, GanConfig
from tutorial_lib.training.live import live
gan = BasicGan(GanConfig(seed=3, minibatch_size=64), is_verbose=False)
trainers = {"discriminator": gan.d_trainer, "generator": gan.g_trainer}
for step in live(12, trainers, gan.generator):
    gan.step()
    if step % 4 == 0:
        print(f"step {step}: {gan.g_trainer.previous_minibatch_loss_average:.4f}")
gan.g_trainer.total_number_of_samples_seen""",
    "%%ranks 1\nprint('one line')",
    "ranks.stop()",
]


def execute(folder: Path) -> nbformat.NotebookNode:
    notebook = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_code_cell(source, id=f"cell-{number}")
            for number, source in enumerate(CELLS)
        ]
    )
    NotebookClient(
        notebook, timeout=180, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    ).execute()
    for cell in notebook.cells:
        cell.outputs = joined(cell.outputs)
    return notebook


def joined(outputs: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """Join neighbouring pieces of one stream, as JupyterLab does and nbclient does not."""
    whole: list[nbformat.NotebookNode] = []
    for output in outputs:
        last = whole[-1] if whole else nbformat.NotebookNode()
        if output.output_type == "stream" and last.get("name") == output.name:
            last.text += output.text
        else:
            whole.append(output)
    return whole


def without_times(value: object) -> object:
    """Leave out digits and bars of times, speeds, memory and shares; pictures stay."""
    if isinstance(value, dict):
        kept = {key: without_times(part) for key, part in value.items()}
        if "iopub.execute_input" in (kept.get("execution") or {}):
            del kept["execution"]  # nbclient's own clock
        return kept
    if isinstance(value, list):
        return [without_times(part) for part in value]
    if isinstance(value, str):
        value = re.sub(r"[\d.,]+ (s|min|samples/s|MiB)\b|\d+%", "~", value)
        return re.sub(r"(cpu +\d+ +\d+ +)[\d,]+ +", r"\1~ ", value)
    return value


def test_two_runs_with_one_seed_save_the_same_notebook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GAN_TUTORIAL_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("GAN_TUTORIAL_MATRIX_PRODUCT", "mkl")  # two processes may choose differently
    one, two = (execute(tmp_path) for _ in range(2))
    assert without_times(one) == without_times(two)
    training = one.cells[1].outputs
    kinds = [output.output_type for output in training]
    assert kinds == ["display_data", "stream", "display_data", "execute_result"]
    board, printed, folded, result = training
    assert board.data["text/plain"].startswith("━" * 30 + " step 12 of 12, ")
    assert "base64" in board.data["text/html"]
    assert printed.text.count("step ") == 3
    assert folded.data["text/plain"] == "[rank 1]\n" + printed.text.rstrip("\n")
    assert result.data["text/plain"] == f"{{0: {12 * 64}, 1: {12 * 64}}}"
    assert one.cells[2].outputs[0].text == "[rank 1]\none line\n"
    for cell in one.cells:
        assert all(not output.get("metadata") for output in cell.outputs)
