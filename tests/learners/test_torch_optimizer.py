import copy

import pytest
import torch
from torch import nn

from tutorial_lib.learners.torch_optimizer import OptimizerLearner, torch_names


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.Linear(3, 2)


def learner(model, **options):
    return OptimizerLearner(torch.optim.SGD(model.parameters(), lr=0.5), **options)


def give_gradients(model, value=8.0):
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, value)


def test_a_sum_becomes_the_mean_over_all_samples(model):
    before = model.weight.detach().clone()
    give_gradients(model)
    assert learner(model).update(4)
    torch.testing.assert_close(before - model.weight, torch.full((2, 3), 0.5 * 8 / 4))


def test_the_whole_gradient_is_clipped_after_the_division(model):
    before = [p.detach().clone() for p in model.parameters()]
    give_gradients(model)
    clipping = learner(model, max_gradient_norm=1.0)
    clipping.update(4)
    moved = torch.cat([(b - p).flatten() for b, p in zip(before, model.parameters(), strict=True)])
    assert moved.norm().item() == pytest.approx(0.5, rel=1e-4)
    assert clipping.gradient_norm == pytest.approx(2 * 8**0.5, rel=1e-4)


def test_rates_follow_the_factor_from_each_groups_own(model):
    groups = [{"params": [model.weight], "lr": 0.1}, {"params": [model.bias], "lr": 0.2}]
    rule = OptimizerLearner(torch.optim.SGD(groups, lr=1.0), lr_factor=lambda update: update + 1.0)
    for rates in ([0.1, 0.2], [0.2, 0.4]):
        assert rule.learning_rate() == rates[0]
        give_gradients(model)
        rule.update(1)
        assert [group["lr"] for group in rule.optimizer.param_groups] == rates
    assert rule.base_rate == 0.1


def test_state_goes_on_where_it_was(model):
    first = OptimizerLearner(torch.optim.Adam(model.parameters(), lr=0.1))
    give_gradients(model)
    first.update(2)
    twin = nn.Linear(3, 2)
    twin.load_state_dict(model.state_dict())
    second = OptimizerLearner(torch.optim.Adam(twin.parameters(), lr=0.1))
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    for rule, net in ((first, model), (second, twin)):
        give_gradients(net, 3.0)
        rule.update(2)
        assert rule.num_updates == 2
    assert torch.equal(model.weight, twin.weight)


def test_nothing_is_learned_from_nothing(model):
    with pytest.raises(ValueError, match="skip it"):
        learner(model).update(0)
    with pytest.raises(ValueError, match="max_gradient_norm is positive"):
        learner(model, max_gradient_norm=0.0)


def test_tensorflows_name_of_the_rate_is_understood():
    given = {"learning_rate": 0.1, "betas": (0, 0)}
    assert torch_names(given) == {"lr": 0.1, "betas": (0, 0)}
    assert "learning_rate" in given
