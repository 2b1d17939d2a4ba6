"""CNTK's recorded quantised gradients, its ranks played by threads."""

from pathlib import Path

import pytest

from tutorial_lib.compat.recorded import compare

FILES = sorted((Path(__file__).parent / "golden").glob("quant_*_r0.json"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_recorded_aggregation_is_followed(path: Path) -> None:
    (result,) = compare(path)
    assert result.is_followed, "sums, parameters, and equal on all ranks"
    if path.stem.endswith("n2_r0"):  # more ranks' parts are added in the order of their arrival
        assert result.worst <= 2e-5, "no element has another code, in 16 bits either"
