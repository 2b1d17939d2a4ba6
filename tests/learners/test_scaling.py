import math

import pytest

from tutorial_lib.learners.scaling import default_warm_up_steps, scaling_factor, warm_up


@pytest.mark.parametrize(
    ("scaling", "factor"),
    [(True, 4), ("linear", 4), ("sqrt", 2), (False, 1), ("off", 1)],
)
def test_factors_for_four_ranks(scaling, factor):
    assert scaling_factor(scaling, 4) == factor
    assert scaling_factor(scaling, 1) == 1


def test_a_number_is_the_factor_itself():
    assert scaling_factor(3, 4) == 3
    assert scaling_factor(1.0, 4) == 1


@pytest.mark.parametrize("scaling", ["cubic", 0.0, -1])
def test_another_rule_is_refused(scaling):
    with pytest.raises(ValueError, match=f"'linear', 'sqrt' or 'off', not {scaling!r}"):
        scaling_factor(scaling, 4)


def test_warm_up_goes_in_equal_steps_from_1_to_the_factor():
    at = warm_up(5.0, 4)
    assert [at(step) for step in range(6)] == [1, 2, 3, 4, 5, 5]
    assert warm_up(5.0, 0)(0) == 5


@pytest.mark.parametrize(
    ("factor", "per_epoch", "total", "steps"),
    [(1, 100, 9000, 0), (4, 100, 9000, 500), (4, 25, 25, 2), (2, 50, math.inf, 250)],
)
def test_default_warm_up_is_five_epochs_but_a_tenth_at_most(factor, per_epoch, total, steps):
    assert default_warm_up_steps(factor, per_epoch, total) == steps
