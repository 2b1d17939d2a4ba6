"""The script repeats runs recorded from CNTK 2.7, update by update."""

import json
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"
SCRIPT = ("-m", "tutorial_lib.training.basic_gan", "--replay-cntk", "--minibatches", "10")


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("ranks", "recorded", "updates", "tolerance"),
    [
        (1, "gan_w1_rank0.json", 30, 1e-6),
        (2, "gan_w2_rank0.json", 10, 2e-6),
        (4, "gan_w4_first30_rank0.json", 30, 1e-6),
    ],
)
def test_losses_are_cntks(mpiexec, tmp_path, ranks, recorded, updates, tolerance):
    file = tmp_path / "losses.json"
    mpiexec(ranks, *SCRIPT, "--losses", file)
    ours = json.loads(file.read_text())["losses"]
    cntks = json.loads((GOLDEN / recorded).read_text())["losses"]
    assert len(ours) == 30
    for mine, theirs in list(zip(ours, cntks, strict=False))[:updates]:
        assert mine[0] == theirs[0]
        assert mine[2:] == theirs[2:]
        assert abs(mine[1] - theirs[1]) <= tolerance


@pytest.mark.mpi
def test_one_bit_training_is_cntks(mpiexec, tmp_path):
    """Six updates agree to rounding; then a rounded bit can flip, and does."""
    file = tmp_path / "losses.json"
    mpiexec(2, *SCRIPT, "--num-quantization-bits", "1", "--losses", file)
    ours = json.loads(file.read_text())["losses"]
    cntks = json.loads((GOLDEN / "gan_quant1bit_w2_rank0.json").read_text())["losses"]
    apart = [abs(mine[1] - theirs[1]) for mine, theirs in zip(ours, cntks, strict=False)]
    assert len(apart) == 30
    assert max(apart[:6]) <= 2e-6
    assert max(apart) <= 2e-3


@pytest.mark.mpi
def test_ranks_that_meet_after_blocks_train_too(mpiexec, tmp_path):
    file = tmp_path / "losses.json"
    block = ("--learner", "block_momentum", "--block-size", "2048")
    mpiexec(2, *SCRIPT, *block, "--losses", file)
    losses = json.loads(file.read_text())["losses"]
    assert [row[2] for row in losses] == [512] * 30, "loss and count are each rank's own"
    generator = [row[3] for row in losses if row[0] == "G"]
    assert generator[:4] == [512, 2048, 2560, 4096], "the total is all ranks' once they have met"
