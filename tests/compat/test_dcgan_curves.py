"""The recorded curves of whole DCGAN trainings."""

import pytest

from tutorial_lib.compat.dcgan_curves import dcgan_curves


def test_every_curve_spans_the_whole_training():
    for curve in dcgan_curves():
        assert len(curve.generator) == len(curve.discriminator) == len(curve.steps)
        assert curve.steps[-1] == 5000


@pytest.mark.parametrize(
    ("name", "generator", "discriminator"),
    [
        ("CNTK, June 2017", (3.068, 1.823), (0.576, 1.172)),
        ("CNTK, another run", (3.050, 1.793), (0.525, 1.200)),
    ],
)
def test_cntks_begin_and_end_as_published(name, generator, discriminator):
    (curve,) = (curve for curve in dcgan_curves() if curve.name == name)
    assert (curve.generator[0], curve.generator[-1]) == pytest.approx(generator, abs=5e-4)
    assert (curve.discriminator[0], curve.discriminator[-1]) == pytest.approx(
        discriminator, abs=5e-4
    )
