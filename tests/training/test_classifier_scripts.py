"""The classifiers' scripts: alone and on ranks, and what they reach."""

import re

import pytest
import torch

from tutorial_lib.data.datasets import mnist
from tutorial_lib.data.pipeline import Pipeline
from tutorial_lib.distributed import session
from tutorial_lib.training import cifar10_cnn, mnist_mlp, softmax_ranks
from tutorial_lib.training.mnist_mlp import MnistConfig, build_validation, mnist_trainer
from tutorial_lib.training.softmax_ranks import train_softmax


def script(name: str) -> tuple[str, str]:
    return "-m", f"tutorial_lib.training.{name}"


@pytest.mark.parametrize(
    ("batch_size", "steps"), [(500, {1: 100, 2: 50, 4: 25}), (128, {1: 391, 2: 196, 4: 98})]
)
def test_steps_of_one_epoch(batch_size, steps):
    rows = torch.zeros(50_000, 1)
    for ranks, expected in steps.items():
        assert Pipeline((rows, rows), batch_size * ranks).steps_per_sweep == expected


def test_mnist_is_split_into_50000_10000_and_10000():
    trainer = mnist_trainer(MnistConfig(log_every=0))
    assert trainer.steps_per_epoch == 100
    images, labels = trainer.validation_dataset
    assert len(images) == len(labels) == 10_000
    assert torch.equal(images, mnist().train.images[-10_000:])
    assert len(trainer.pipeline.source) == 50_000


def test_one_epoch_of_mnist_reaches_what_was_measured():
    trainer = mnist_trainer(MnistConfig(log_every=0))
    trainer.train_to_end()
    assert trainer.evaluate(mnist().test, build_validation)["accuracy"] >= 0.92


@pytest.mark.mpi
def test_mnist_on_two_ranks(mpiexec):
    arguments = ("--training-images", "4000", "--epochs", "4")
    done = mpiexec(2, *script("mnist_mlp"), *arguments)
    first, *lines = done.stdout.splitlines()
    assert first == (
        "2 ranks x 500 samples = 1000 in a step, 4 steps in an epoch; "
        "learning rate 0.001 x 2 after 1 steps"
    )
    assert [line.split(":")[0] for line in lines] == [
        "step 10 of 16",
        "validation at step 16",
        "test",
    ], "rank 0 alone prints"
    accuracy = float(re.search(r"accuracy = (0\.\d{4})$", lines[-1])[1])
    assert accuracy > 0.6


@pytest.mark.mpi
@pytest.mark.timeout(280)
def test_cifar10_says_that_it_is_the_sample(mpiexec):
    done = mpiexec(2, *script("cifar10_cnn"), "--bf16", timeout_s=250)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("2 ranks x 128 samples = 256 in a step, 8 steps in an epoch")
    assert re.fullmatch(r"test on CIFAR-10 sample: accuracy = 0\.\d{4}", lines[-1])


@pytest.mark.mpi
def test_a_softmax_classifier_on_two_nodes_of_two(mpiexec, tmp_path):
    path = tmp_path / "softmax.pt"
    arguments = ("--samples", "8192", "--minibatch-size", "66", "--save", path)
    done = mpiexec(4, *script("softmax_ranks"), *arguments)
    versions, *_, last = done.stdout.splitlines()
    assert versions.startswith("All ranks run Python 3.")
    alone = train_softmax(session.start(), 66, 8192, progress_frequency=None)
    assert alone.is_disjoint
    assert alone.own_samples == alone.samples == 125 * 66
    assert alone.accuracy > 0.85
    assert last == (
        "4 ranks trained on 8,250 images, 8,250 of them different; "
        f"test accuracy {alone.accuracy:.4f}"
    )
    for name, value in torch.load(path).items():
        torch.testing.assert_close(value, alone.model.state_dict()[name])


@pytest.mark.parametrize("module", [mnist_mlp, cifar10_cnn, softmax_ranks])
def test_a_missing_folder_and_a_wrong_argument_are_explained(module, tmp_path, capsys):
    with pytest.raises(SystemExit, match=r"error: .*nowhere"):
        module.main(["--datadir", str(tmp_path / "nowhere")])
    with pytest.raises(SystemExit, match="2"):
        module.main(["--seed", "one"])
    assert f"usage: {module.__name__.split('.')[-1]}" in capsys.readouterr().err


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("initialization", "least"),
    [("pytorch", (0.935, 0.972, 0.982)), ("tensorlayer", (0.923, 0.962, 0.982))],
)
def test_mnist_reaches_what_was_measured(initialization, least):
    trainer = mnist_trainer(MnistConfig(epochs=20, initialization=initialization, log_every=0))
    reached = {}
    for _ in trainer:
        if trainer.epoch in (1, 5, 20):
            reached[trainer.epoch] = trainer.evaluate(mnist().test, build_validation)["accuracy"]
    for accuracy, expected in zip(reached.values(), least, strict=True):
        assert accuracy >= expected
