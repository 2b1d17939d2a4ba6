"""The DCGAN in training: its steps, its ranks, its checkpoint, its script."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image

from tutorial_lib.data.errors import DataError
from tutorial_lib.training.basic_gan import BasicGan, GanConfig
from tutorial_lib.training.checkpoint import load_generator, save_generator
from tutorial_lib.training.dcgan import Dcgan, DcganConfig, train_dcgan
from tutorial_lib.training.gan import frozen
from tutorial_lib.training.gan_checkpoint import restore_gan, save_gan
from tutorial_lib.training.gan_loop import run_steps
from tutorial_lib.training.samples import draw_samples

PROGRAMS = Path(__file__).parent / "programs"
SCRIPT = ("-m", "tutorial_lib.training.dcgan")
FINAL_LINE = re.compile(r"Training loss of the generator at worker: \{(\d)\} is: \{(\d\.\d{6})\}")


def small(minibatches: int = 2, **changes) -> DcganConfig:
    return DcganConfig(num_minibatches=minibatches, minibatch_size=8, **changes)


def test_a_step_has_two_updates_of_each_network_and_one_noise_for_both_of_the_generators():
    gan = Dcgan(small(), is_verbose=False)
    records = gan.step()
    assert [record.network for record in records] == ["D", "D", "G", "G"]
    assert [record.samples_seen for record in records] == [8, 16, 8, 16]
    assert gan.noise.position == 3 * 8
    assert gan.source.position == 2 * 8


def test_a_generator_step_leaves_the_discriminators_weights_untouched():
    """Its running statistics do move: the generator's images pass through it."""
    gan = Dcgan(small(), is_verbose=False)
    gan.step()
    weights = [p.clone() for p in gan.discriminator.parameters()]
    buffers = [b.clone() for b in gan.discriminator.buffers()]
    with frozen(gan.discriminator):
        gan.g_trainer.train_minibatch(gan.next_noise())
    for before, after in zip(weights, gan.discriminator.parameters(), strict=True):
        assert torch.equal(before, after)
    assert any(
        not torch.equal(before, after)
        for before, after in zip(buffers, gan.discriminator.buffers(), strict=True)
    )


def test_a_discriminator_step_leaves_the_generators_weights_untouched():
    gan = Dcgan(small(), is_verbose=False)
    before = [p.clone() for p in gan.generator.parameters()]
    gan.d_trainer.train_minibatch(gan.next_images().features, gan.next_noise())
    for value, parameter in zip(before, gan.generator.parameters(), strict=True):
        assert torch.equal(value, parameter)


def test_a_first_update_moves_each_weight_by_at_most_the_learning_rate():
    """Adam's first step is the gradient's sign, times 0.0002, whatever the minibatch's size."""
    gan = Dcgan(small(), is_verbose=False)
    before = torch.cat([p.flatten() for p in gan.discriminator.parameters()])
    gan.d_trainer.train_minibatch(gan.next_images().features, gan.next_noise())
    moved = torch.cat([p.flatten() for p in gan.discriminator.parameters()]) - before
    assert moved.abs().max().item() == pytest.approx(0.0002, abs=1e-6)  # rounding of a 1
    assert moved.abs().median().item() == pytest.approx(0.0002, rel=0.01)


def test_resumed_training_is_the_uninterrupted_one(tmp_path):
    whole = train_dcgan(small(4, matrix_product="mkl"), is_verbose=False)
    file = tmp_path / "dcgan.ckpt"
    train_dcgan(small(2, matrix_product="mkl"), is_verbose=False, checkpoint=file)
    resumed = train_dcgan(small(4, matrix_product="mkl"), is_verbose=False, checkpoint=file)
    assert resumed.losses == whole.losses
    assert resumed.seconds > 0
    for name in ("generator", "discriminator"):
        one, other = getattr(whole, name).state_dict(), getattr(resumed, name).state_dict()
        assert all(torch.equal(one[key], other[key]) for key in one)


def test_a_checkpoint_is_not_larger_than_what_it_keeps(tmp_path):
    gan = Dcgan(small(1), is_verbose=False)
    save_gan(gan, tmp_path / "dcgan.ckpt", run_steps(gan))
    values = sum(p.numel() for n in (gan.generator, gan.discriminator) for p in n.parameters())
    size = (tmp_path / "dcgan.ckpt").stat().st_size
    assert size < 1.1 * 3 * 4 * values  # weights and two momenta, float32


def test_a_checkpoint_of_another_gan_is_refused(tmp_path):
    gan = BasicGan(GanConfig(num_minibatches=1, minibatch_size=8), is_verbose=False)
    save_gan(gan, tmp_path / "basic.ckpt", run_steps(gan))
    with pytest.raises(DataError, match="another model"):
        restore_gan(Dcgan(small(), is_verbose=False), tmp_path / "basic.ckpt")


def test_a_generator_draws_by_its_running_statistics_whoever_else_is_drawn(tmp_path):
    gan = Dcgan(small(), is_verbose=False)
    gan.step()
    save_generator(tmp_path / "generator.pt", gan.generator, minibatches=1)
    generator, facts = load_generator(tmp_path / "generator.pt")
    assert facts == {"minibatches": 1}
    many = draw_samples(generator, count=36)
    torch.testing.assert_close(
        torch.from_numpy(draw_samples(generator, count=4)), torch.from_numpy(many[:4])
    )
    assert many.min() >= -1
    assert many.max() <= 1
    assert generator.training


@pytest.mark.parametrize(("wrong", "told"), [({"minibatch_size": 1}, "two samples on each rank")])
def test_a_minibatch_without_a_variance_is_refused(wrong, told):
    with pytest.raises(ValueError, match=told):
        Dcgan(DcganConfig(**wrong), is_verbose=False)


def test_there_is_nothing_to_replay():
    with pytest.raises(ValueError, match="no run of CNTK's DCGAN is recorded"):
        DcganConfig(is_cntk_replay=True)


@pytest.mark.mpi
@pytest.mark.timeout(200)
def test_two_ranks_sum_their_own_gradients_and_keep_their_own_statistics(mpiexec):
    """Not those of one rank: each normalises its own part, so equality with one rank can't be."""
    done = mpiexec(2, PROGRAMS / "dcgan_ranks.py", timeout_s=150)
    assert "all as expected" in done.stdout


@pytest.mark.mpi
@pytest.mark.timeout(400)
def test_the_script_trains_on_two_ranks_and_goes_on_from_its_checkpoint(mpiexec, tmp_path):
    def run(minibatches: int) -> subprocess.CompletedProcess[str]:
        files = ["--losses", tmp_path / "losses.json", "--save", tmp_path / "generator.pt"]
        files += ["--plot", tmp_path / "grid.png", "--checkpoint", tmp_path / "dcgan.ckpt"]
        options = ["--minibatches", str(minibatches), "--minibatch-size", "8"]
        return mpiexec(2, *SCRIPT, *options, *files, timeout_s=180)

    run(1)
    first = json.loads((tmp_path / "losses.json").read_text())["losses"]
    done = run(2)
    record = json.loads((tmp_path / "losses.json").read_text())
    assert record["workers"] == 2
    assert [row[0] for row in record["losses"]] == ["D", "D", "G", "G"] * 2
    assert record["losses"][:4] == first
    found = FINAL_LINE.findall(done.stdout)
    assert sorted(rank for rank, _ in found) == ["0", "1"]
    assert len({loss for _, loss in found}) == 1
    assert done.stdout.count("Minibatch[") == 2, "one step was left, and only rank 0 tells of it"
    with Image.open(tmp_path / "grid.png") as grid:
        assert min(grid.size) > 300
    assert load_generator(tmp_path / "generator.pt")[1]["workers"] == 2


def test_a_wrong_argument_is_explained():
    command = [sys.executable, *SCRIPT, "--minibatches", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 2
    assert "usage: dcgan" in done.stderr
