import math
from typing import Any

import pytest

from tutorial_lib.learners.schedules import (
    IGNORE,
    Schedule,
    as_schedule,
    learning_parameter_schedule,
    learning_parameter_schedule_per_sample,
    momentum_as_time_constant_schedule,
    momentum_for,
    momentum_schedule,
    momentum_schedule_per_sample,
    rate_for,
)


def test_a_number_holds_for_ever() -> None:
    schedule = learning_parameter_schedule(0.1)
    assert {schedule.at(samples) for samples in (0, 1, 10**9)} == {0.1}


def test_a_list_gives_each_value_one_epoch_and_the_last_one_the_rest() -> None:
    schedule = learning_parameter_schedule_per_sample([3, 2, 1], epoch_size=100)
    samples = (0, 99, 100, 199, 200, 10_000)
    assert [schedule.at(count) for count in samples] == [3, 3, 2, 2, 1, 1]


def test_pairs_give_each_value_its_epochs() -> None:
    schedule = learning_parameter_schedule([(2, 5.0), (3, 4.0), (1, 1.0)], epoch_size=10)
    assert [schedule.at(count) for count in (0, 19, 20, 49, 50, 99)] == [5, 5, 4, 4, 1, 1]


def test_without_an_epoch_size_a_list_goes_by_sweeps() -> None:
    schedule = learning_parameter_schedule([3, (2), 1])
    assert schedule.is_sweep_based
    assert [schedule.at(10**6, sweeps) for sweeps in (0, 1, 2, 9)] == [3, 2, 1, 1]


@pytest.mark.parametrize(
    ("make", "reference_size"),
    [
        (learning_parameter_schedule, IGNORE),
        (learning_parameter_schedule_per_sample, 1),
        (momentum_schedule, IGNORE),
        (momentum_schedule_per_sample, 1),
        (momentum_as_time_constant_schedule, 1),
        (lambda value: learning_parameter_schedule(value, 32), 32),
        (lambda value: momentum_schedule(value, minibatch_size=32), 32),
    ],
)
def test_a_schedule_knows_for_how_many_samples_it_is_meant(make: Any, reference_size: int) -> None:
    assert make(0.5).reference_size == reference_size


def test_time_constants_become_momenta_per_sample() -> None:
    schedule = momentum_as_time_constant_schedule([700, 0], epoch_size=10)
    assert schedule.at(0) == 0.9985724484938566
    assert schedule.at(10) == 0


def test_a_learner_decides_where_a_schedule_does_not() -> None:
    assert as_schedule(0.1, 32, None).reference_size == 32
    assert as_schedule(learning_parameter_schedule(0.1), 32, None).reference_size == 32
    assert as_schedule(learning_parameter_schedule(0.1, IGNORE), 32, None).reference_size == 0
    assert as_schedule(learning_parameter_schedule_per_sample(0.1), 32, None).reference_size == 1


@pytest.mark.parametrize("is_mean", [False, True])
@pytest.mark.parametrize("reference_size", [1, 32])
def test_per_samples_each_sample_counts_the_same_whatever_the_minibatch(
    reference_size: int, is_mean: bool
) -> None:
    # The mean's factor is the sum's times the number of samples.
    for samples in (1, 7, 1024):
        rate = rate_for(0.5, reference_size, samples, is_mean)
        assert rate == pytest.approx(0.5 / reference_size * (samples if is_mean else 1))


def test_per_minibatch_the_mean_gradient_counts_whatever_its_size() -> None:
    for samples in (1, 7, 1024):
        assert rate_for(0.5, IGNORE, samples, is_mean=True) == 0.5
        assert rate_for(0.5, IGNORE, samples, is_mean=False) == 0.5 / samples


def test_momentum_fades_by_samples_unless_it_is_per_minibatch() -> None:
    assert momentum_for(0.9, IGNORE, 1024) == 0.9
    assert momentum_for(0.9, 32, 64) == pytest.approx(0.81)
    halves = momentum_for(0.99, 1, 100) * momentum_for(0.99, 1, 28)
    assert halves == pytest.approx(momentum_for(0.99, 1, 128), rel=1e-12)


def test_a_schedule_moved_to_now_begins_now() -> None:
    schedule = learning_parameter_schedule([3, 2], epoch_size=10).starting_at(95, 0)
    assert [schedule.at(count) for count in (95, 104, 105)] == [3, 3, 2]


def test_last_value_needs_no_number_of_epochs() -> None:
    schedule = learning_parameter_schedule([(2, 5.0), (0, 4.0)], epoch_size=10)
    assert [schedule.at(count) for count in (0, 19, 20, 1000)] == [5.0, 5.0, 4.0, 4.0]


def test_plain_types_bring_a_schedule_back() -> None:
    schedule = learning_parameter_schedule([(2, 5.0), (3, 4.0)], 32, epoch_size=10)
    assert Schedule.from_plain(schedule.as_plain()) == schedule


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (([],), ValueError),
        (([(0, 1.0), (1, 2.0)],), ValueError),
        (([(1, 1.0), (-1, 2.0)],), ValueError),
        (([(1.5, 1.0)],), ValueError),
        ((0.1, -1), ValueError),
        (([0.1], None, -5), ValueError),
        (("0.1",), TypeError),
    ],
)
def test_nonsense_is_refused(arguments: tuple[Any, ...], error: type[Exception]) -> None:
    with pytest.raises(error):
        learning_parameter_schedule(*arguments)


def test_the_defaults_are_the_papers() -> None:
    assert math.isclose(momentum_as_time_constant_schedule(720000).at(0), 0.9999986111120757)
