"""The GAN example as a script: one process, MPI ranks, torchrun."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

from tutorial_lib.models.gan import Discriminator
from tutorial_lib.models.matrix_product import matrix_product, matrix_product_state
from tutorial_lib.training.basic_gan import BasicGan, GanConfig, frozen, train_gan
from tutorial_lib.training.checkpoint import load_generator

SCRIPT = ("-m", "tutorial_lib.training.basic_gan")
FINAL_LINE = re.compile(
    r"Training loss of the generator at worker: \{(\d+)\} is: \{(\d\.\d{6})\}, "
    r"time taken is: \{(\d+)\} seconds\."
)
PROGRESS_LINE = re.compile(
    r" Minibatch\[ *(\d+)- *(\d+)\]: loss = \d\.\d{6} \* \d+, metric = 0\.00% \* \d+;"
)


def differences(first: dict, second: dict) -> list[float]:
    pairs = zip(first["losses"], second["losses"], strict=True)
    return [abs(a[1] - b[1]) for a, b in pairs]


class Run:
    """A finished run of the script and the files that it wrote."""

    def __init__(self, mpiexec, folder: Path, ranks: int, *arguments: str) -> None:
        self.folder = folder
        files = ["--losses", folder / "losses.json", "--save", folder / "generator.pt"]
        self.done = mpiexec(
            ranks, *SCRIPT, *files, "--plot", folder / "grid.png", *arguments, timeout_s=200
        )
        self.losses = json.loads((folder / "losses.json").read_text())


@pytest.fixture(scope="module")
def fast(mpiexec, tmp_path_factory):
    """Fast mode, whole, on 1, 2 and 4 ranks; each trained once."""
    pinned = ("--matrix-product", "mkl")  # the last loss swings by 0.3 with the last bit
    return {n: Run(mpiexec, tmp_path_factory.mktemp(f"fast{n}"), n, *pinned) for n in (1, 2, 4)}


@pytest.fixture(scope="module")
def exact(mpiexec, tmp_path_factory):
    """30 updates in float64 on 1, 2, 3 and 4 ranks."""
    arguments = ("--dtype", "float64", "--minibatches", "10")
    return {
        n: Run(mpiexec, tmp_path_factory.mktemp(f"exact{n}"), n, *arguments) for n in (1, 2, 3, 4)
    }


@pytest.mark.mpi
@pytest.mark.timeout(640)  # for the three runs that the first test waits for
@pytest.mark.parametrize("n", [1, 2, 4])
class TestFastMode:
    def test_every_rank_ends_with_cntks_line(self, fast, n):
        found = FINAL_LINE.findall(fast[n].done.stdout)
        assert sorted(int(rank) for rank, _, _ in found) == list(range(n))
        assert len({loss for _, loss, _ in found}) == 1, "the loss is equal on all ranks"

    def test_the_final_loss_lies_within_cntks_own_spread(self, fast, n):
        network, loss, *_ = fast[n].losses["losses"][-1]
        assert network == "G"
        assert abs(loss - 2.08) <= 0.54

    def test_only_rank_0_prints_progress(self, fast, n):
        lines = [line for line in fast[n].done.stdout.splitlines() if "Minibatch[" in line]
        spans = [tuple(map(int, PROGRESS_LINE.fullmatch(line).groups())) for line in lines]
        discriminator = [(i, i + 11) for i in range(1, 600, 12)]
        generator = [(i, i + 5) for i in range(1, 300, 6)]
        assert spans == [
            span for pair in zip(discriminator, generator, strict=True) for span in pair
        ]

    def test_the_losses_are_recorded_in_the_order_of_the_updates(self, fast, n):
        record = fast[n].losses
        assert record["workers"] == n
        assert [row[0] for row in record["losses"]] == ["D", "D", "G"] * 300
        assert all(row[2] == 1024 and row[4] is True for row in record["losses"])
        assert record["losses"][-1][3] == 300 * 1024
        assert record["losses"][-2][3] == 600 * 1024

    def test_the_grid_is_drawn_and_has_bright_strokes(self, fast, n):
        image = Image.open(fast[n].folder / "grid.png").convert("L")
        assert min(image.size) > 300
        darkest, brightest = image.getextrema()
        assert darkest < 20
        assert brightest > 235

    def test_the_generator_is_kept(self, fast, n):
        _, facts = load_generator(fast[n].folder / "generator.pt")
        assert facts == {"minibatches": 300, "seed": 1, "workers": n}


@pytest.mark.mpi
@pytest.mark.timeout(640)
@pytest.mark.parametrize("n", [2, 4])
class TestEquality:
    def test_ranks_do_not_change_the_first_updates(self, fast, n):
        assert max(differences(fast[1].losses, fast[n].losses)[:10]) <= 1e-5

    def test_float32_drifts_no_further_than_rounding_explains(self, fast, n):
        """Chaos amplifies the last bit: small still at update 30, below 1 at update 100."""
        apart = differences(fast[1].losses, fast[n].losses)
        assert max(apart[:30]) <= 1e-3
        assert max(apart[:100]) < 0.5


@pytest.mark.mpi
@pytest.mark.timeout(360)
@pytest.mark.parametrize("n", [2, 3, 4])
def test_float64_shows_that_the_ranks_compute_the_same(exact, n):
    assert len(exact[1].losses["losses"]) == 30
    assert max(differences(exact[1].losses, exact[n].losses)) <= 1e-9


@pytest.mark.timeout(360)
def test_torchrun_trains_the_same(exact, tmp_path):
    torchrun = Path(sys.executable).parent / "torchrun"
    losses = tmp_path / "losses.json"
    options = ["--dtype", "float64", "--minibatches", "10", "--losses", losses]
    command = [torchrun, "--standalone", "--nproc-per-node", "2", *SCRIPT, *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, env=environment)
    assert done.returncode == 0, done.stderr
    assert len(FINAL_LINE.findall(done.stdout)) == 2
    assert max(differences(exact[1].losses, json.loads(losses.read_text()))) <= 1e-9


def run_alone(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *SCRIPT, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=100)


def test_a_missing_data_folder_is_one_line_that_says_what_to_do(tmp_path):
    done = run_alone("-datadir", str(tmp_path))
    assert done.returncode == 1
    assert "Please generate the data by completing CNTK 103 Part A" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.mpi
def test_a_missing_data_folder_ends_all_ranks(mpiexec, tmp_path):
    done = mpiexec(2, *SCRIPT, "--datadir", tmp_path / "nowhere", check=False)
    assert done.returncode != 0
    assert "nowhere" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments", [["--minibatches", "0"], ["--mode", "slow"], ["--dtype", "f"]]
)
def test_a_wrong_argument_is_explained(arguments):
    done = run_alone(*arguments)
    assert done.returncode == 2
    assert "usage: basic_gan" in done.stderr


@pytest.mark.parametrize("bits", ["0", "3", "31", "few"])
def test_bits_that_cannot_be_packed_are_explained(bits):
    done = run_alone("--num-quantization-bits", bits)
    assert done.returncode == 2
    assert "argument --num-quantization-bits" in done.stderr


def test_bits_that_block_momentum_would_not_use_are_refused():
    done = run_alone("--learner", "block_momentum", "--num-quantization-bits", "1")
    assert done.returncode == 2
    assert "block momentum sums no gradients" in done.stderr


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--replay-cntk"], "CNTK's example can't run on 3 ranks"),
        (["--learner", "block_momentum"], "1024 is no multiple of 3 ranks"),
    ],
)
def test_ranks_that_would_part_are_refused(mpiexec, arguments, said):
    done = mpiexec(3, *SCRIPT, *arguments, check=False, timeout_s=180)
    assert done.returncode != 0
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.mpi
def test_a_rank_without_samples_trains_along(mpiexec, tmp_path):
    losses = []
    for ranks in (1, 2):
        file = tmp_path / f"{ranks}.json"
        few = ("--minibatches", "2", "--minibatch-size", "1", "--num-quantization-bits", "64")
        more = ("--matrix-product", "mkl", "--losses", file)
        mpiexec(ranks, *SCRIPT, *few, *more, timeout_s=180)
        losses.append([row[1] for row in json.loads(file.read_text())["losses"]])
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)


def test_a_generator_step_leaves_the_discriminator_untouched():
    gan = BasicGan(GanConfig(minibatch_size=64), is_verbose=False)
    gan.step()
    before = {k: v.clone() for k, v in gan.discriminator.state_dict().items()}
    gradients = [p.grad.clone() for p in gan.discriminator.parameters()]
    with frozen(gan.discriminator):
        gan.g_trainer.train_minibatch(gan.next_noise())
    for name, value in gan.discriminator.state_dict().items():
        assert torch.equal(before[name], value)
    for gradient, parameter in zip(gradients, gan.discriminator.parameters(), strict=True):
        assert torch.equal(gradient, parameter.grad)
        assert parameter.requires_grad


def test_a_discriminator_step_leaves_the_generator_untouched():
    gan = BasicGan(GanConfig(minibatch_size=64), is_verbose=False)
    before = {k: v.clone() for k, v in gan.generator.state_dict().items()}
    gan.d_trainer.train_minibatch(gan.next_images().features, gan.next_noise())
    for name, value in gan.generator.state_dict().items():
        assert torch.equal(before[name], value)
    assert all(p.grad is None for p in gan.generator.parameters())


def test_equal_seeds_give_equal_runs_and_others_do_not():
    def losses(seed: int) -> list[float]:
        config = GanConfig(num_minibatches=3, minibatch_size=64, seed=seed)
        return [record.loss_average for record in train_gan(config, is_verbose=False).losses]

    assert losses(7) == losses(7) != losses(8)


def test_a_caller_can_watch_each_step():
    seen = []
    config = GanConfig(num_minibatches=3, minibatch_size=32)
    train_gan(config, on_step=lambda n, result: seen.append((n, len(result.losses))))
    assert seen == [(1, 3), (2, 6), (3, 9)]


@pytest.mark.parametrize(
    ("config", "library"),
    [
        (GanConfig(), "auto"),
        (GanConfig(is_cntk_replay=True), "mkl"),
        (GanConfig(is_cntk_replay=True, matrix_product="onednn"), "onednn"),
        (GanConfig(matrix_product="mkl"), "mkl"),
    ],
)
def test_a_replay_pins_the_matrix_product(config, library):
    with matrix_product("auto"):
        BasicGan(config, is_verbose=False)
        assert matrix_product_state()["library"] == library


def test_bfloat16_products_leave_weights_and_losses_in_float32():
    config = GanConfig(num_minibatches=10, minibatch_size=256)
    full = train_gan(config, is_verbose=False)
    half = train_gan(replace(config, autocast=torch.bfloat16), is_verbose=False)
    assert {p.dtype for p in half.generator.parameters()} == {torch.float32}
    for one, other in zip(full.losses, half.losses, strict=True):
        assert one.loss_average == pytest.approx(other.loss_average, rel=0.02)
    assert full.losses != half.losses


@pytest.mark.parametrize("wanted", [None, torch.bfloat16])
def test_within_a_callers_own_autocast_training_goes_on_and_products_are_as_wanted(wanted):
    config = GanConfig(num_minibatches=3, minibatch_size=256, autocast=wanted)
    alone = train_gan(config, is_verbose=False)
    with torch.autocast("cpu", torch.bfloat16):
        within = train_gan(config, is_verbose=False)
    for one, other in zip(alone.losses, within.losses, strict=True):
        assert one.loss_average == pytest.approx(other.loss_average, rel=0.005)


def test_bfloat16_does_not_round_a_sure_discriminators_probability():
    torch.manual_seed(0)
    discriminator = Discriminator()
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        discriminator.output.bias.fill_(6)
        probabilities = discriminator(torch.rand(64, 784) * 2 - 1)
    assert probabilities.dtype == torch.float32
    assert probabilities.unique().numel() > 16
    assert probabilities.max() < 1
