"""CNTK's recorded block momentum, its ranks played by threads."""

from pathlib import Path

import pytest

from tutorial_lib.compat.recorded import compare

FILES = sorted((Path(__file__).parent / "golden").glob("bm_*_r0.json"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_recorded_block_momentum_is_followed(path: Path) -> None:
    (result,) = compare(path)
    assert result.worst <= 5e-7
    assert result.is_followed, "counts and returned values too"
