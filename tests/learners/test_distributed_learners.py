"""Distributed learners on ranks that threads play; on real ranks in tests/fidelity."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tutorial_lib.learners.block_momentum import (
    BlockMomentumLearner,
    block_momentum_distributed_learner,
)
from tutorial_lib.learners.data_parallel import (
    DataParallelLearner,
    data_parallel_distributed_learner,
)
from tutorial_lib.learners.distributed_learner import (
    DistributedLearner,
    check_learners,
    metric_aggregator,
)
from tutorial_lib.learners.fsadagrad import fsadagrad
from tutorial_lib.learners.schedules import (
    learning_parameter_schedule_per_sample,
    momentum_schedule_per_sample,
)
from tutorial_lib.learners.sgd import SGD, sgd
from tutorial_lib.learners.simulation import run_ranks

LR = learning_parameter_schedule_per_sample(1e-2)
MOMENTUM = momentum_schedule_per_sample(0.9)


def local() -> SGD:
    return sgd([torch.ones(3, requires_grad=True)], LR)


def adaptive(weight: Tensor) -> Any:
    return fsadagrad([weight], LR, MOMENTUM)


def step(learner: DataParallelLearner, weight: Tensor, data: Tensor) -> bool:
    """Learn from this rank's part of a minibatch, as a trainer does."""
    weight.grad = (data @ weight.detach()).cosh().sum() * data.sum(0)
    count = torch.tensor(float(len(data)))
    learner.reduce([weight], [weight.grad])
    if learner.is_synchronizing:
        learner._ranks.all_reduce(count)
    return learner.update(int(count))


@pytest.mark.parametrize("world_size", [2, 3])
def test_ranks_do_together_what_one_does_alone(world_size: int) -> None:
    minibatches = torch.randn(6, 7, 4, generator=torch.Generator().manual_seed(1))

    def gradient(weight: Tensor, data: Tensor) -> Tensor:
        return (data * (data @ weight.detach()).sinh()[:, None]).sum(0)

    def run(rank: int) -> Tensor:
        weight = torch.linspace(-1, 1, 4).requires_grad_()
        learner = data_parallel_distributed_learner(adaptive(weight))
        for data in minibatches:
            weight.grad = gradient(weight, data[rank::world_size])
            learner.reduce([weight], [weight.grad])
            assert learner.update(len(data))
        return weight.detach()

    weight = torch.linspace(-1, 1, 4).requires_grad_()
    alone = data_parallel_distributed_learner(adaptive(weight))
    for data in minibatches:
        weight.grad = gradient(weight, data)
        alone.reduce([weight], [weight.grad])
        alone.update(len(data))
    for found in run_ranks(world_size, run):
        torch.testing.assert_close(found, weight.detach(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("bits", [1, 32])
def test_before_the_limit_each_rank_is_alone(bits: int) -> None:
    def run(rank: int) -> list[tuple[bool, int]]:
        weight = torch.ones(3, requires_grad=True)
        learner = data_parallel_distributed_learner(sgd([weight], LR), 12, bits)
        seen = []
        for number in range(5):
            is_synchronizing = learner.is_synchronizing
            data = torch.randn(4, 3, generator=torch.Generator().manual_seed(10 * number + rank))
            step(learner, weight, data)
            seen.append((is_synchronizing, learner.total_number_of_samples_seen))
        assert (learner.bytes_sent > 0) == (learner._ranks.world_size > 1)
        return seen

    expected = [(False, 4), (False, 8), (False, 12), (True, 20), (True, 28)]
    assert run_ranks(2, run) == [expected] * 2


def test_a_quantised_learner_resumes_with_its_residuals() -> None:
    def run(rank: int) -> tuple[Tensor, Tensor]:
        def train(learner: DataParallelLearner, weight: Tensor, steps: range) -> Tensor:
            for number in steps:
                generator = torch.Generator().manual_seed(10 * number + rank)
                weight.grad = torch.randn(weight.shape, generator=generator)
                learner.reduce([weight], [weight.grad])
                learner.update(8)
            return weight.detach()

        def make(start: Tensor) -> tuple[DataParallelLearner, Tensor]:
            weight = start.clone().requires_grad_()
            learner = data_parallel_distributed_learner(adaptive(weight), num_quantization_bits=1)
            return learner, weight

        whole, weight = make(torch.ones(5, 3))
        train(whole, weight, range(4))
        resumed, copy = make(weight.detach())
        resumed.load_state_dict(whole.state_dict())
        return train(whole, weight, range(4, 8)), train(resumed, copy, range(4, 8))

    for whole, resumed in run_ranks(2, run):
        assert torch.equal(whole, resumed)


def test_one_rank_alone_sends_and_quantises_nothing() -> None:
    weight = torch.ones(3, requires_grad=True)
    learner = data_parallel_distributed_learner(sgd([weight], LR), num_quantization_bits=1)
    weight.grad = torch.tensor([1.0, 2.0, 4.0])
    learner.reduce([weight], [weight.grad])
    assert torch.equal(weight.grad, torch.tensor([1.0, 2.0, 4.0]))
    assert learner.update(2)
    assert learner.bytes_sent == 0
    assert not learner.update(0)


def blocks(weight: Tensor, **options: Any) -> BlockMomentumLearner:
    return block_momentum_distributed_learner(adaptive(weight), **options)


def test_between_meetings_ranks_differ_and_after_one_they_agree() -> None:
    def run(rank: int) -> list[Tensor]:
        weight = torch.ones(3, requires_grad=True)
        learner = blocks(weight, block_size=16)
        history = []
        for number in range(4):
            generator = torch.Generator().manual_seed(10 * number + rank)
            weight.grad = torch.randn(3, generator=generator)
            assert learner.update(4)
            history.append(weight.detach().clone())
        return history

    one, other = run_ranks(2, run)
    assert [torch.equal(a, b) for a, b in zip(one, other, strict=True)] == [
        False,
        True,
        False,
        True,
    ]


def test_ranks_that_run_out_of_data_wait_for_the_others() -> None:
    def run(rank: int) -> tuple[Tensor, int, list[bool]]:
        weight = torch.ones(3, requires_grad=True)
        learner = blocks(weight, block_size=12)
        answers = []
        for number in range(3 + 4 * rank):
            generator = torch.Generator().manual_seed(10 * number + rank)
            weight.grad = torch.randn(3, generator=generator)
            answers.append(learner.update(4))
        answers.append(learner.update(0))
        return weight.detach(), learner.total_number_of_samples_seen, answers

    results = run_ranks(3, run)
    for rank, (weight, total, answers) in enumerate(results):
        assert torch.equal(weight, results[0][0])
        assert total == 4 * (3 + 7 + 11)
        assert answers == [True] * (3 + 4 * rank) + [False]


def test_a_checkpoint_brings_block_momentum_back() -> None:
    def train(learner: BlockMomentumLearner, weight: Tensor, rank: int, steps: range) -> Tensor:
        for number in steps:
            generator = torch.Generator().manual_seed(10 * number + rank)
            weight.grad = torch.randn(3, generator=generator)
            learner.update(4)
        return weight.detach().clone()

    def run(rank: int) -> list[Tensor]:
        options = {"block_size": 16, "block_momentum_as_time_constant": 40.0}
        weight = torch.ones(3, requires_grad=True)
        learner = blocks(weight, **options)
        train(learner, weight, rank, range(5))  # in the middle of a block
        saved = learner.state_dict()
        met = weight.detach().clone()
        copy = met.clone().requires_grad_()
        resumed = blocks(copy, **options)
        resumed.load_state_dict(saved)
        assert resumed.total_number_of_samples_seen == 40
        return [
            met,
            train(learner, weight, rank, range(5, 9)),
            train(resumed, copy, rank, range(5, 9)),
        ]

    results = run_ranks(2, run)
    for met, whole, resumed in results:
        assert torch.equal(met, results[0][0])
        assert torch.equal(whole, resumed)


def test_a_checkpoint_waits_for_ranks_that_still_meet() -> None:
    def run(rank: int) -> Tensor:
        weight = torch.ones(3, requires_grad=True)
        learner = blocks(weight, block_size=8)
        for number in range(2 - rank):
            weight.grad = torch.full((3,), float(number + 1))
            learner.update(4)
        learner.state_dict()
        return weight.detach()

    one, other = run_ranks(2, run)
    assert torch.equal(one, other)


def test_a_checkpoint_right_after_a_meeting_moves_nothing() -> None:
    weight = torch.ones(3, requires_grad=True)
    learner = blocks(weight, block_size=4, block_momentum_as_time_constant=40.0)
    weight.grad = torch.ones(3)
    learner.update(4)
    before = weight.detach().clone()
    learner.state_dict()
    assert torch.equal(weight, before)


def test_a_block_smaller_than_the_ranks_is_refused() -> None:
    with pytest.raises(ValueError, match="Sync period is too small"):
        run_ranks(3, lambda rank: blocks(torch.ones(1, requires_grad=True), block_size=2))


def test_asynchronous_updates_are_refused() -> None:
    with pytest.raises(
        RuntimeError,
        match="Asynchronous parameter update is not yet supported for the "
        "DataParallelDistributedLearner",
    ):
        data_parallel_distributed_learner(local(), use_async_buffered_parameter_update=True)


def test_local_and_distributed_learners_do_not_mix() -> None:
    with pytest.raises(ValueError, match="Cannot use a non-distributed learner"):
        check_learners([local(), data_parallel_distributed_learner(local())])


def test_the_limits_must_be_the_same() -> None:
    learners = [data_parallel_distributed_learner(local(), after) for after in (0, 8)]
    with pytest.raises(ValueError, match="the same DistributeAfterSamples limit"):
        check_learners(learners)


def test_a_sole_distributed_learner_aggregates_the_metrics() -> None:
    learner = data_parallel_distributed_learner(local())
    assert metric_aggregator([learner]) is learner
    assert learner.is_metric_aggregator


def test_one_of_several_has_to_aggregate_the_metrics() -> None:
    first, second = (data_parallel_distributed_learner(local()) for _ in range(2))
    check_learners([first, second])
    with pytest.raises(RuntimeError, match="Update failed: Metric aggregation did not happen"):
        metric_aggregator([first, second])
    second.set_as_metric_aggregator()
    assert metric_aggregator([first, second]) is second
    first.set_as_metric_aggregator()
    with pytest.raises(ValueError, match="Only one"):
        check_learners([first, second])


def test_local_learners_need_no_aggregator() -> None:
    check_learners([local(), local()])
    assert metric_aggregator([local()]) is None


def test_block_momentum_and_data_parallel_learners_may_mix() -> None:
    blockwise = block_momentum_distributed_learner(local(), 16)
    blockwise.set_as_metric_aggregator()
    check_learners([blockwise, data_parallel_distributed_learner(local())])


@pytest.mark.parametrize(
    "make", [data_parallel_distributed_learner, lambda x: block_momentum_distributed_learner(x, 8)]
)
def test_rates_are_reached_through_the_wrapper(make: Callable[[Any], Any]) -> None:
    learner = make(local())
    learner.reset_learning_rate(0.5)
    assert learner.learning_rate() == 0.5
    assert learner.communicator().rank() == 0
    assert learner.communicator().is_main()


class Bucket:
    """What DistributedDataParallel hands to a hook, of two parameters."""

    def __init__(self, *weights: Tensor) -> None:
        self.weights = weights

    def parameters(self) -> list[Tensor]:
        return list(self.weights)

    def gradients(self) -> list[Tensor]:
        return [weight.grad for weight in self.weights]

    def buffer(self) -> Tensor:
        return torch.cat(self.gradients())


@pytest.mark.parametrize("bits", [1, 32])
def test_a_learner_of_some_parameters_leaves_the_others_alone(bits: int) -> None:
    def run(rank: int) -> list[list[float]]:
        mine, other = (torch.zeros(2, requires_grad=True) for _ in range(2))
        mine.grad, other.grad = torch.full((2,), rank + 1.0), torch.full((2,), rank + 1.0)
        learner = data_parallel_distributed_learner(sgd([mine], 0.1), num_quantization_bits=bits)
        DistributedLearner.comm_hook(learner, None, Bucket(mine, other))
        return [mine.grad.tolist(), other.grad.tolist()]

    assert run_ranks(2, run) == [[[3, 3], [1, 1]], [[3, 3], [2, 2]]]
