import json
import os
from pathlib import Path

import pytest
import torch
from torch import nn

from tutorial_lib.data.errors import DataError
from tutorial_lib.learners.fsadagrad import fsadagrad
from tutorial_lib.models.matrix_product import matrix_product, matrix_product_state
from tutorial_lib.training import checkpoint, trainer_state
from tutorial_lib.training.trainer import Trainer

PROGRAM = Path(__file__).parent / "programs" / "checkpoint_trainer.py"


def make(outputs=3):
    model = nn.Linear(4, outputs)
    learner = fsadagrad(model.parameters(), lr=0.01, momentum=0.9)
    return Trainer(model, lambda net, x: net(x).square().sum(dim=1), learner)


def run(mpiexec, n, path, kind):
    lines = mpiexec(n, PROGRAM, path, kind, timeout_s=200).stdout.splitlines()
    return {row["of"]: row for row in map(json.loads, lines)}


@pytest.mark.mpi
@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", ["plain", "one_bit", "block"])
def test_a_resumed_training_is_the_uninterrupted_one(mpiexec, tmp_path, kind):
    rows = run(mpiexec, 2, tmp_path / "checkpoint", kind)
    for row in rows.values():
        assert row["seen"] == 60
        assert row["resumed"] == row["uninterrupted"]


@pytest.mark.mpi
@pytest.mark.timeout(480)
@pytest.mark.parametrize("kind", ["plain", "one_bit", "block"])
def test_another_number_of_ranks_can_go_on(mpiexec, tmp_path, kind):
    path = tmp_path / "checkpoint"
    saved = run(mpiexec, 2, path, kind)
    resumed = run(mpiexec, 3, path, kind)
    assert [resumed[rank]["external"] for rank in range(3)] == [0, 1, 0]
    if kind == "plain":
        assert resumed[2]["resumed"] == pytest.approx(saved[0]["uninterrupted"], rel=1e-5)


def test_alone_a_checkpoint_holds_the_callers_state_too(tmp_path):
    trainer = make()
    trainer.train_minibatch(torch.randn(5, 4))
    trainer.save_checkpoint(tmp_path / "checkpoint", {"epoch": 3})
    again = make()
    assert again.restore_from_checkpoint(tmp_path / "checkpoint") == {"epoch": 3}
    assert again.total_number_of_samples_seen == 5
    assert torch.equal(again.training_network.weight, trainer.training_network.weight)
    assert os.listdir(tmp_path) == ["checkpoint"]


def test_a_resumed_training_multiplies_matrices_as_it_did(tmp_path):
    trainer = make()
    with matrix_product("onednn"):
        trainer.save_checkpoint(tmp_path / "checkpoint")
    with matrix_product("mkl"):
        trainer.restore_from_checkpoint(tmp_path / "checkpoint")
        assert matrix_product_state()["library"] == "onednn"


def test_a_state_that_holds_code_is_refused_and_the_last_file_kept(tmp_path):
    trainer, path = make(), tmp_path / "checkpoint"
    trainer.save_checkpoint(path, {"epoch": 1})
    before = path.read_bytes()
    with pytest.raises(TypeError, match="tensors and plain values only"):
        trainer.save_checkpoint(path, {"path": Path("/")})
    assert path.read_bytes() == before


def test_a_full_disk_keeps_the_last_file(tmp_path, monkeypatch):
    trainer, path = make(), tmp_path / "checkpoint"
    trainer.save_checkpoint(path)
    before = path.read_bytes()

    def full(state, file):
        file.write(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(trainer_state, "_check_plain", lambda value: None)
    monkeypatch.setattr(checkpoint.torch, "save", full)
    with pytest.raises(OSError, match=r"rank 0 could not write the checkpoint.*No space left"):
        trainer.save_checkpoint(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["checkpoint"]


@pytest.mark.mpi
def test_every_rank_hears_of_a_full_disk_and_the_last_file_stays(mpiexec, tmp_path):
    rows = run(mpiexec, 2, tmp_path / "checkpoint", "full")
    for rank in (0, 1):
        for name, told in zip(("trainer", "fit"), rows[rank]["told"], strict=True):
            assert told.startswith(f"rank 0 could not write the checkpoint {tmp_path / name}")
            assert "No space left on device" in told
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fit", "trainer"]


@pytest.mark.parametrize("cut", [0, 1, 100, -1])
def test_a_file_cut_short_is_refused_and_nothing_changes(tmp_path, cut):
    trainer, path = make(), tmp_path / "checkpoint"
    trainer.save_checkpoint(path)
    path.write_bytes(path.read_bytes()[:cut])
    other = make()
    before = other.training_network.weight.clone()
    with pytest.raises(DataError, match="checkpoint: expected a checkpoint of this training"):
        other.restore_from_checkpoint(path)
    assert torch.equal(other.training_network.weight, before)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        make().restore_from_checkpoint(tmp_path / "checkpoint")


def test_another_models_checkpoint_is_refused(tmp_path):
    make(outputs=2).save_checkpoint(tmp_path / "checkpoint")
    with pytest.raises(DataError, match=r"differs in \['bias', 'weight'\]"):
        make().restore_from_checkpoint(tmp_path / "checkpoint")


def test_a_state_that_a_learner_cannot_take_is_named_and_the_model_kept(tmp_path):
    path = tmp_path / "checkpoint"
    make().save_checkpoint(path)
    network = nn.Linear(4, 3)
    learner = fsadagrad([network.weight], lr=0.01, momentum=0.9)
    other = Trainer(network, lambda net, x: net(x).square().sum(dim=1), learner)
    before = network.weight.clone()
    with pytest.raises(DataError, match="a state that learner 0 can't take"):
        other.restore_from_checkpoint(path)
    assert torch.equal(network.weight, before)


def test_a_foreign_file_is_refused(tmp_path):
    torch.save({"weights": torch.ones(2)}, tmp_path / "checkpoint")
    with pytest.raises(DataError, match="another torch file"):
        make().restore_from_checkpoint(tmp_path / "checkpoint")
