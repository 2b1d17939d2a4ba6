import builtins
import csv

import pytest
import torch
from torch import nn

from tutorial_lib.training.fit import Trainer
from tutorial_lib.training.logs import CsvLog, TensorBoard


def trainer(callback, epochs=2):
    x = torch.arange(12.0)[:, None]
    return Trainer(
        nn.Linear(1, 1),
        (x, x),
        lambda net, x, y: (net(x) - y).square().mean(),
        torch.optim.SGD,
        {"lr": 1e-4},
        batch_size=4,
        log_step_size=0,
        validation_dataset=(x, x),
        build_validation_func=lambda net, x, y: {"error": (net(x) - y).abs().flatten()},
        epochs=epochs,
        callbacks=[callback],
    )


def rows(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_csv_has_a_row_for_each_measure(tmp_path):
    path = tmp_path / "new" / "log.csv"
    trained = trainer(CsvLog(path, every=2))
    trained.train_and_validate_to_end(3)
    found = [(row["step"], row["kind"], row["name"]) for row in rows(path)]
    assert found == [
        ("2", "training", "loss"),
        ("3", "validation", "error"),
        ("4", "training", "loss"),
        ("6", "training", "loss"),
        ("6", "validation", "error"),
    ]
    last = rows(path)[-1]
    assert float(last["value"]) == trained.validation_metrics["error"]
    assert float(last["epoch"]) == 2
    assert float(last["learning_rate"]) == 1e-4


def test_csv_drops_what_a_resumed_training_makes_again(tmp_path):
    path = tmp_path / "log.csv"
    trainer(CsvLog(path)).train_to_end()
    with open(path, "a") as file:
        file.write("7,2.3,0.1")  # half a row: killed while writing
    second = trainer(CsvLog(path))
    second.global_step = 4  # as a checkpoint leaves it
    second.train_on_batch()
    assert [row["step"] for row in rows(path)] == ["1", "2", "3", "4", "5"]


# torch's writer and TensorBoard's reader lean on what NumPy and protobuf are giving up.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_gets_measures_and_rate_and_drops_what_is_made_again(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    trainer(TensorBoard(tmp_path, every=3)).train_and_validate_to_end(3)
    second = trainer(TensorBoard(tmp_path, every=3))
    second.global_step = 3  # as a checkpoint leaves it
    second.train_and_validate_to_end(3)
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    steps = {n: [event.step for event in events.Scalars(n)] for n in events.Tags()["scalars"]}
    assert steps == {
        "training/loss": [3, 6, 9],
        "training/learning_rate": [3, 6, 9],
        "validation/error": [3, 6, 9],
    }


def test_without_tensorboard_the_way_to_get_it_is_told(tmp_path, monkeypatch):
    def refuse(name, *args, **kwargs):
        if "tensorboard" in name:
            raise ImportError(name)
        return original(name, *args, **kwargs)

    original = builtins.__import__
    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ImportError, match="pip install tensorboard"):
        TensorBoard(tmp_path)
