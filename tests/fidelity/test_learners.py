"""Every recorded case of CNTK's local learners, number for number."""

from pathlib import Path

import pytest

from tutorial_lib.compat.recorded import compare_learner
from tutorial_lib.compat.recorded_file import read_recorded

RECORDED = read_recorded(Path(__file__).parent / "golden" / "learners.json")


@pytest.mark.parametrize("name", RECORDED["cases"])
def test_each_recorded_learner_is_followed(name: str) -> None:
    assert compare_learner(name, RECORDED).is_followed
