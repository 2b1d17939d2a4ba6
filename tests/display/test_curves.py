import math

import numpy as np
import pytest

from tutorial_lib.display.curves import loss_curves


def test_curves_hold_the_values_at_their_steps():
    picture = loss_curves({"g": [3.0, 2.0], "d": [1.0]}, steps={"g": [6, 12]})
    lines = {line.get_label(): line for line in picture.figure.axes[0].lines}
    np.testing.assert_array_equal(lines["g"].get_xydata(), [[6, 3], [12, 2]])
    np.testing.assert_array_equal(lines["d"].get_xydata(), [[1, 1]])


def test_alternative_tells_each_curve_and_what_is_missing():
    alt = loss_curves({"generator": [2.0, math.nan, 0.5, 4.0, 3.0]}, xlabel="minibatch").alt
    assert alt == (
        "Chart of loss per sample against minibatch. generator: 2 at step 1, lowest 0.5 at 3, "
        "highest 4 at 4, 3 at the last step 5; 1 not finite."
    )
    assert "no finite value" in loss_curves({"x": [math.inf]}).alt


def test_infinity_and_nan_are_gaps():
    line = loss_curves({"x": [1.0, math.inf, 2.0]}).figure.axes[0].lines[0]
    assert np.isnan(line.get_ydata()[1])


def test_curves_differ_by_more_than_colour():
    lines = loss_curves({name: [1.0, 2.0] for name in "abcd"}).figure.axes[0].lines
    assert len({str(line._dash_pattern) for line in lines}) == len(lines)


def test_log_scale_leaves_zeros_out():
    axes = loss_curves({"x": [0.0, 1.0, 10.0]}, log_scale=True).figure.axes[0]
    assert axes.get_yscale() == "log"
    assert np.isnan(axes.lines[0].get_ydata()[0])


@pytest.mark.parametrize("series", [{}, {"x": []}])
def test_nothing_to_draw_is_refused(series):
    with pytest.raises(ValueError, match="nothing to draw"):
        loss_curves(series)


def test_steps_must_pair_up():
    with pytest.raises(ValueError, match="2 values at 1 steps"):
        loss_curves({"x": [1.0, 2.0]}, steps={"x": [1]})
