"""The losses in the package are those that CNTK was seen to report."""

import json
from pathlib import Path

import pytest

from tutorial_lib.compat.gan_curves import cntk_losses

GOLDEN = Path(__file__).resolve().parents[1] / "fidelity" / "golden"


@pytest.mark.parametrize(
    ("workers", "bits", "file"),
    [
        (1, 32, "gan_w1_rank0.json"),
        (2, 32, "gan_w2_rank0.json"),
        (4, 32, "gan_w4_first30_rank0.json"),
        (2, 1, "gan_quant1bit_w2_rank0.json"),
    ],
)
def test_losses_are_the_recorded_ones(workers, bits, file):
    recorded = json.loads((GOLDEN / file).read_text())["losses"]
    assert cntk_losses(workers, bits) == [(row[0], row[1]) for row in recorded]


def test_what_was_not_recorded_is_named():
    with pytest.raises(ValueError, match="not recorded on 3 workers, 32 bits, only on: 1 workers"):
        cntk_losses(3)
