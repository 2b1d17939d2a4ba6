import math

import pytest
import torch

from tutorial_lib.models.losses import discriminator_loss, generator_loss, safe_log


def test_safe_log_is_log_where_log_is_safe():
    x = torch.logspace(-36, 0, 50, dtype=torch.float64, requires_grad=True)
    y = safe_log(x)
    assert torch.allclose(y, x.log(), rtol=0, atol=1e-9)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert torch.allclose(gradient, 1 / x, rtol=1e-9)


def test_safe_log_of_zero_is_cntks_constant_with_a_finite_gradient():
    x = torch.zeros(3, requires_grad=True)
    y = safe_log(x)
    assert y.tolist() == pytest.approx([-85.1] * 3)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("logit", [-200.0, 200.0])
def test_a_saturated_discriminator_makes_no_nan(logit):
    weight = torch.tensor([logit], requires_grad=True)
    loss = discriminator_loss(torch.sigmoid(weight), torch.sigmoid(weight))
    loss = loss + generator_loss(torch.sigmoid(weight))
    loss.sum().backward()
    assert torch.isfinite(loss).all()
    assert torch.isfinite(weight.grad).all()


def test_a_plain_log_would_make_one():
    weight = torch.tensor([-200.0], requires_grad=True)
    torch.log(torch.sigmoid(weight)).sum().backward()
    assert torch.isnan(weight.grad).all()


def test_losses_of_an_undecided_discriminator():
    half = torch.full((4, 1), 0.5)
    assert discriminator_loss(half, half).tolist() == pytest.approx([2 * math.log(2)] * 4)
    assert generator_loss(half).tolist() == pytest.approx([1 + math.log(2)] * 4)
