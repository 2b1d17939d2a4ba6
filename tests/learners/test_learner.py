"""What holds for every local learner; the numbers themselves are in tests/fidelity."""

import copy
import io
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tutorial_lib.learners import fsadagrad as fsadagrad_module
from tutorial_lib.learners.adam import adam
from tutorial_lib.learners.fsadagrad import fsadagrad
from tutorial_lib.learners.learner import Learner
from tutorial_lib.learners.schedules import (
    IGNORE,
    learning_parameter_schedule,
    learning_parameter_schedule_per_sample,
    momentum_schedule_per_sample,
)
from tutorial_lib.learners.sgd import momentum_sgd, nesterov, sgd

Make = Callable[..., Learner]

LR = learning_parameter_schedule_per_sample(1e-3)
MOMENTUM = momentum_schedule_per_sample(0.99)

LEARNERS: dict[str, Make] = {
    "sgd": sgd,
    "momentum_sgd": lambda p, lr, **o: momentum_sgd(p, lr, MOMENTUM, **o),
    "nesterov": lambda p, lr, **o: nesterov(p, lr, MOMENTUM, **o),
    "adam": lambda p, lr, **o: adam(p, lr, MOMENTUM, **o),
    "fsadagrad": lambda p, lr, **o: fsadagrad(p, lr, MOMENTUM, **o),
}
every_learner = pytest.mark.parametrize("make", LEARNERS.values(), ids=LEARNERS)


def parameters(dtype: torch.dtype = torch.float32) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    shapes = [(4, 3), (4,), (), (2, 3, 5)]
    return [
        torch.randn(shape, generator=generator, dtype=dtype).requires_grad_() for shape in shapes
    ]


def set_gradients(tensors: list[Tensor], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for tensor in tensors:
        tensor.grad = torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype)


def train(learner: Learner, seeds: range) -> list[Tensor]:
    for seed in seeds:
        set_gradients(learner.parameters, seed)
        assert learner.update(3 + seed % 5)
    return [parameter.detach().clone() for parameter in learner.parameters]


def are_equal(a: list[Tensor], b: list[Tensor]) -> bool:
    return all(map(torch.equal, a, b))


@every_learner
def test_resumed_equals_uninterrupted(make: Make) -> None:
    lr = learning_parameter_schedule_per_sample([1e-3, 1e-4], epoch_size=20)
    options = {"gaussian_noise_injection_std_dev": 0.01}
    whole = train(make(parameters(), lr, **options), range(12))
    first = make(parameters(), lr, **options)
    train(first, range(6))
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    values = [p.detach().clone().requires_grad_() for p in first.parameters]
    second = make(values, 123.0)  # the rate's schedule comes with the state
    second.load_state_dict(torch.load(file, weights_only=True))
    assert are_equal(train(second, range(6, 12)), whole)
    assert second.total_number_of_samples_seen == sum(3 + seed % 5 for seed in range(12))


@every_learner
def test_a_copy_goes_its_own_way(make: Make) -> None:
    learner = make(parameters(), LR)
    train(learner, range(3))
    twin = copy.deepcopy(learner)
    assert are_equal(train(twin, range(3, 6)), train(learner, range(3, 6)))


@every_learner
def test_gradients_are_left_as_they_were(make: Make) -> None:
    options = {
        "l2_regularization_weight": 0.1,
        "gradient_clipping_threshold_per_sample": 0.1,
        "minibatch_size": IGNORE,
    }
    learner = make(parameters(), 0.1, **options)
    set_gradients(learner.parameters, 1)
    before = [parameter.grad.clone() for parameter in learner.parameters]
    learner.update(4)
    assert are_equal([parameter.grad for parameter in learner.parameters], before)


@every_learner
def test_a_parameter_without_gradient_stays(make: Make) -> None:
    learner, all_alone = make(parameters(), LR), make(parameters()[1:2], LR)
    for seed in range(4):
        set_gradients(learner.parameters, seed)
        for number in (0, 2, 3):
            learner.parameters[number].grad = None
        all_alone.parameters[0].grad = learner.parameters[1].grad
        learner.update(5)
        all_alone.update(5)
    start = parameters()
    for number in (0, 2, 3):
        assert torch.equal(learner.parameters[number], start[number])
    assert torch.equal(learner.parameters[1], all_alone.parameters[0])


@every_learner
def test_parameters_may_come_and_go_between_updates(make: Make) -> None:
    # Whatever has a gradient is updated from its own memory, wherever that lies.
    learner = make(parameters(), LR)
    alone = [make([parameter], LR) for parameter in parameters()]
    for seed in range(8):
        set_gradients(learner.parameters, seed)
        learner.parameters[seed % 4].grad = None
        for number, single in enumerate(alone):
            single.parameters[0].grad = learner.parameters[number].grad
            single.update(5)
        learner.update(5)
    assert are_equal(learner.parameters, [single.parameters[0] for single in alone])


@every_learner
def test_data_that_was_replaced_is_updated_where_it_is(make: Make) -> None:
    learner, plain = make(parameters(), LR), make(parameters(), LR)
    for seed in range(4):
        for parameter in learner.parameters:
            parameter.data = parameter.data.clone()
        set_gradients(learner.parameters, seed)
        set_gradients(plain.parameters, seed)
        learner.update(5)
        plain.update(5)
    assert are_equal(learner.parameters, plain.parameters)


@every_learner
def test_double_precision_is_kept(make: Make) -> None:
    double, single = parameters(torch.float64), parameters()
    for mine, other in zip(double, single, strict=True):
        with torch.no_grad():
            mine.copy_(other)
    a, b = make(double, LR), make(single, LR)
    for seed in range(10):
        set_gradients(b.parameters, seed)
        for mine, other in zip(double, single, strict=True):
            mine.grad = other.grad.double()
        a.update(5)
        b.update(5)
    gaps = [(mine - other).abs().max().item() for mine, other in zip(double, single, strict=True)]
    assert 0 < max(gaps) < 1e-4


@every_learner
def test_a_rate_of_zero_changes_nothing(make: Make) -> None:
    learner = make(parameters(), 0.0)
    set_gradients(learner.parameters, 1)
    assert not learner.update(5)
    assert are_equal(learner.parameters, parameters())
    assert not learner.state
    assert learner.total_number_of_samples_seen == 0


@every_learner
def test_sums_over_parts_of_a_minibatch_do_what_the_whole_does(make: Make) -> None:
    # The learner sees the sum alone, so who computed which part can't matter.
    model = nn.Linear(3, 2)
    data, twin = torch.randn(8, 3), copy.deepcopy(model)
    a, b = make(model.parameters(), LR), make(twin.parameters(), LR)
    model(data).square().sum().backward()
    for part in data.split([5, 0, 3]):
        twin(part).square().sum().backward()
    a.update(8)
    b.update(8)
    for mine, other in zip(a.parameters, b.parameters, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-6)


@every_learner
def test_groups_may_differ(make: Make) -> None:
    first, second = parameters()[:2], parameters()[2:]
    learner = make([{"params": first}, {"params": second, "lr": 0.0}], LR)
    alone = make(parameters()[:2], LR)
    for seed in range(3):
        set_gradients(learner.parameters, seed)
        for mine, other in zip(alone.parameters, first, strict=True):
            mine.grad = other.grad.clone()
        learner.update(5)
        alone.update(5)
    assert are_equal(second, parameters()[2:])
    assert are_equal(first, alone.parameters)


@every_learner
def test_a_closure_is_called_and_its_loss_returned(make: Make) -> None:
    weight = torch.ones(3, requires_grad=True)
    learner = make([weight], LR)

    def closure() -> Tensor:
        weight.grad = None
        loss = weight.square().sum()
        loss.backward()
        return loss

    losses = [learner.step(closure).item() for _ in range(20)]
    assert losses[0] == 3
    assert losses[-1] < losses[0]


@every_learner
def test_a_torch_scheduler_drives_the_rate(make: Make) -> None:
    learner = make(parameters(), LR)
    scheduler = torch.optim.lr_scheduler.StepLR(learner, 2, gamma=0.1)
    rates = []
    for seed in range(4):
        rates.append(learner.learning_rate())
        set_gradients(learner.parameters, seed)
        learner.update(5)
        scheduler.step()
    assert rates == pytest.approx([1e-3, 1e-3, 1e-4, 1e-4])


@every_learner
def test_a_grad_scaler_skips_updates_that_overflow(make: Make) -> None:
    learner = make(parameters(), LR)
    scaler = torch.amp.GradScaler("cpu")
    set_gradients(learner.parameters, 1)
    scaler.scale(torch.zeros(()))  # starts the scaler
    learner.parameters[0].grad.view(-1)[0] = math.inf
    scaler.step(learner, num_samples=5)
    assert are_equal(learner.parameters, parameters())
    scaler.update()
    set_gradients(learner.parameters, 2)
    scaler.step(learner, num_samples=5)
    assert not are_equal(learner.parameters, parameters())


def test_sweeps_move_a_schedule_without_epoch_size() -> None:
    learner = sgd(parameters(), learning_parameter_schedule([3.0, 2.0, 1.0]))
    rates = []
    for seed in range(6):
        rates.append(learner.learning_rate())
        set_gradients(learner.parameters, seed)
        learner.update(5, is_sweep_end=seed % 2 == 1)
    assert rates == [3, 3, 2, 2, 1, 1]


def test_a_new_rate_begins_now() -> None:
    learner = sgd(parameters(), LR)
    train(learner, range(3))
    seen = learner.total_number_of_samples_seen
    learner.reset_learning_rate(learning_parameter_schedule_per_sample([2e-3, 1e-3], 10))
    assert learner.learning_rate() == 2e-3
    set_gradients(learner.parameters, 1)
    learner.update(10)
    assert learner.total_number_of_samples_seen == seen + 10
    assert learner.learning_rate() == 1e-3


def test_forgetting_leaves_a_new_learner_with_the_old_count() -> None:
    learner = LEARNERS["fsadagrad"](parameters(), LR)
    train(learner, range(3))
    learner.reset_smoothed_gradients()
    values = [p.detach().clone().requires_grad_() for p in learner.parameters]
    fresh = LEARNERS["fsadagrad"](values, LR)
    assert are_equal(train(learner, range(3, 6)), train(fresh, range(3, 6)))
    assert learner.total_number_of_samples_seen > fresh.total_number_of_samples_seen


@pytest.mark.parametrize("minibatch_size", [None, IGNORE, 32])
def test_clipping_bounds_what_a_minibatch_can_do(minibatch_size: int | None) -> None:
    for with_truncation in (True, False):
        weight = torch.zeros(100, requires_grad=True)
        learner = sgd(
            [weight],
            learning_parameter_schedule_per_sample(1.0),
            gradient_clipping_threshold_per_sample=0.01,
            gradient_clipping_with_truncation=with_truncation,
            minibatch_size=minibatch_size,
        )
        weight.grad = torch.full((100,), 1e6)
        learner.update(4)
        size = weight.detach().abs().max() if with_truncation else weight.detach().norm()
        assert size.item() == pytest.approx(0.01 * 4, rel=1e-5)


def test_a_norm_of_zero_is_within_a_threshold_of_zero() -> None:
    weight = torch.ones(2, requires_grad=True)
    weight.grad = torch.zeros(2)
    options = {"gradient_clipping_threshold_per_sample": 0.0}
    sgd([weight], LR, gradient_clipping_with_truncation=False, **options).update(1)
    assert weight.tolist() == [1.0, 1.0]


def test_small_gradients_are_not_clipped() -> None:
    options = {"gradient_clipping_threshold_per_sample": 1e3}
    for with_truncation in (True, False):
        clipped = sgd(
            parameters(), LR, gradient_clipping_with_truncation=with_truncation, **options
        )
        assert are_equal(train(clipped, range(3)), train(sgd(parameters(), LR), range(3)))


def test_l2_pulls_toward_zero_and_l1_leaves_exact_zeros() -> None:
    weight = torch.tensor([1.0, -1.0, 1e-3], requires_grad=True)
    weight.grad = torch.zeros(3)
    sgd([weight], learning_parameter_schedule_per_sample(0.1), l2_regularization_weight=0.5).update(
        2
    )
    torch.testing.assert_close(weight.detach(), torch.tensor([0.9, -0.9, 0.9e-3]))
    weight = torch.tensor([1.0, -1.0, 1e-3], requires_grad=True)
    weight.grad = torch.zeros(3)
    sgd([weight], learning_parameter_schedule_per_sample(0.1), l1_regularization_weight=0.5).update(
        2
    )
    torch.testing.assert_close(weight.detach(), torch.tensor([0.9, -0.9, 0.0]))


def test_noise_is_as_wide_as_asked_and_equal_on_all_ranks() -> None:
    def noisy() -> Tensor:
        weight = torch.zeros(10_000, requires_grad=True)
        learner = sgd([weight], LR, gaussian_noise_injection_std_dev=0.5)
        for _ in range(2):
            weight.grad = torch.zeros(10_000)
            learner.update(1)
        return weight.detach()

    first = noisy()
    assert torch.equal(first, noisy())
    assert first.std().item() == pytest.approx(0.5 * math.sqrt(2), rel=0.05)
    assert abs(first.mean().item()) < 0.02


def test_the_largest_factor_is_ten() -> None:
    # A first gradient far below 1 would otherwise be blown up to the size of 1.
    weight = torch.zeros(1, requires_grad=True)
    learner = fsadagrad([weight], learning_parameter_schedule_per_sample(1.0), 0.0)
    weight.grad = torch.full((1,), 1e-4)
    learner.update(1024)
    assert weight.item() == pytest.approx(-1e-3, rel=1e-5)


def test_a_variance_momentum_of_one_scales_nothing() -> None:
    weight = torch.zeros(1, requires_grad=True)
    learner = fsadagrad([weight], LR, 0.0, variance_momentum=1.0)
    weight.grad = torch.ones(1)
    learner.update(1)
    assert weight.item() == pytest.approx(-1e-3)


def test_a_variance_momentum_that_rounds_to_one_scales_nothing_either() -> None:
    weight = torch.zeros(2, requires_grad=True)
    weight.grad = torch.tensor([1.0, -2.0])
    nearly_one = momentum_schedule_per_sample(1 - 1e-12)
    fsadagrad([weight], LR, 0.0, variance_momentum=nearly_one).update(1)
    torch.testing.assert_close(weight.detach(), torch.tensor([-1e-3, 2e-3]))


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (sgd, ["Learning rate per 1 samples"]),
        (LEARNERS["momentum_sgd"], ["Learning rate per 1 samples", "Momentum per 1 samples"]),
        (LEARNERS["nesterov"], ["Learning rate per 1 samples"]),
        (LEARNERS["adam"], ["Learning rate per 1 samples"]),
        (LEARNERS["fsadagrad"], ["Learning rate per 1 samples"]),
    ],
)
def test_what_is_reported_is_what_cntk_reports(make: Make, names: list[str]) -> None:
    assert list(make(parameters(), LR).reported_parameters()) == names


@pytest.mark.parametrize(
    "option",
    [
        "l1_regularization_weight",
        "l2_regularization_weight",
        "gradient_clipping_threshold_per_sample",
    ],
)
def test_a_negative_option_is_refused(option: str) -> None:
    with pytest.raises(ValueError, match=option):
        sgd(parameters(), LR, **{option: -1.0})


def test_an_option_that_is_none_is_refused() -> None:
    with pytest.raises(TypeError, match="l2_regularisation_weight"):
        sgd(parameters(), LR, l2_regularisation_weight=0.1)


def test_the_mean_gradient_has_an_older_name() -> None:
    old = sgd(parameters(), 0.1, use_mean_gradient=True)
    new = sgd(parameters(), 0.1, minibatch_size=IGNORE)
    assert are_equal(train(old, range(3)), train(new, range(3)))


def test_a_momentum_that_nobody_would_read_is_refused() -> None:
    with pytest.raises(ValueError, match="momentum"):
        torch.optim.lr_scheduler.OneCycleLR(
            LEARNERS["momentum_sgd"](parameters(), LR), 0.1, total_steps=10
        )


def test_parameters_must_be_there_once() -> None:
    with pytest.raises(ValueError, match="empty"):
        sgd([], LR)
    weight = torch.zeros(1, requires_grad=True)
    with pytest.raises(ValueError, match="duplicates"):
        sgd([weight, weight], LR)


def test_an_empty_minibatch_is_refused() -> None:
    with pytest.raises(ValueError, match="skip"):
        sgd(parameters(), LR).update(0)


def test_another_optimizers_state_is_refused() -> None:
    weights = parameters()
    state = torch.optim.SGD(weights, 0.1).state_dict()
    with pytest.raises(ValueError, match="not a learner's state"):
        sgd(weights, LR).load_state_dict(state)


def test_fused_kernels_of_many_elements_do_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    start = torch.linspace(-1, 1, 2 * fsadagrad_module.FEW_ELEMENTS)
    ends = []
    for few in (fsadagrad_module.FEW_ELEMENTS, start.numel()):
        monkeypatch.setattr(fsadagrad_module, "FEW_ELEMENTS", few)
        parameter = start.clone().requires_grad_()
        learner = fsadagrad([parameter], LR, MOMENTUM)
        for update in range(1, 4):
            parameter.grad = start.roll(1000 * update) * 64
            learner.update(64)
        ends.append(parameter.detach())
    assert not torch.equal(start, ends[0])
    torch.testing.assert_close(*ends, rtol=0, atol=2.0**-23)
