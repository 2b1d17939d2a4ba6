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
