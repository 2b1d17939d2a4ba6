from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

pytest.importorskip("tensorboard")

from tutorial_lib.training.tensorboard import TensorBoardProgressWriter

# torch's writer and TensorBoard's reader lean on what NumPy and protobuf are giving up.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def curves(folder: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events: Any = EventAccumulator(str(folder))
    events.Reload()
    return {
        name: [(event.step, event.value) for event in events.Scalars(name)]
        for name in events.Tags()["scalars"]
    }


def test_curves_hold_what_was_trained_and_tested(tmp_path: Path) -> None:
    writer = TensorBoardProgressWriter(2, tmp_path)
    for number in range(1, 5):
        writer.update(4, 4.0 * number, 1.0)
    writer.summarize()
    writer.update_test(8, 2.0)
    writer.summarize_test()
    writer.write_value("mine", 7.0, 3)
    writer.close()
    assert curves(tmp_path) == {
        "minibatch/avg_loss": [(2, 1.5), (4, 3.5)],
        "minibatch/avg_metric": [(2, 0.25), (4, 0.25)],
        "summary/avg_loss": [(1, 2.5)],
        "summary/avg_metric": [(1, 0.25)],
        "minibatch/test_avg_metric": [(4, 0.25)],
        "mine": [(3, 7.0)],
    }


def test_a_test_without_training_has_a_curve_of_its_own(tmp_path: Path) -> None:
    writer = TensorBoardProgressWriter(log_dir=tmp_path)
    for _ in range(2):
        writer.update_test(8, 2.0)
        writer.summarize_test()
    writer.close()
    assert curves(tmp_path) == {"summary/test_avg_metric": [(1, 0.25), (2, 0.25)]}


def test_only_the_main_rank_writes(tmp_path: Path) -> None:
    writer = TensorBoardProgressWriter(1, tmp_path, rank=1)
    writer.update(4, 4.0)
    writer.summarize()
    writer.flush()
    writer.close()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("is_drawn", [False, True])
def test_a_model_is_described(tmp_path: Path, is_drawn: bool) -> None:
    model = nn.Linear(3, 2)
    TensorBoardProgressWriter(
        log_dir=tmp_path, model=(model, torch.zeros(1, 3)) if is_drawn else model
    ).close()
    (file,) = tmp_path.iterdir()
    assert b"Linear" in file.read_bytes()


def test_a_closed_writer_is_closed(tmp_path: Path) -> None:
    writer = TensorBoardProgressWriter(1, tmp_path)
    writer.close()
    for use in (writer.flush, writer.close, lambda: writer.update(1, 1.0)):
        with pytest.raises(RuntimeError, match="Attempting to use a closed"):
            use()


def test_a_frequency_below_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="None"):
        TensorBoardProgressWriter(0, tmp_path)
