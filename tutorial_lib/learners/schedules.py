"""What a learner's rate and momentum are, per how many samples, and how they change over time."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

IGNORE = 0
"""The reference minibatch size of a value that is meant per minibatch, whatever its size."""

ScheduleValue = float | Sequence[float] | Sequence[tuple[int, float]]


@dataclass(frozen=True)
class Schedule:
    """A value that changes as samples (or sweeps) go by, and the minibatch size it is meant for.

    Args:
        starts: Count at which each value begins to hold, ascending from 0. Counted in samples,
            or in sweeps through the data where ``is_sweep_based``.
        values: One value for each of ``starts``; the last one holds for ever.
        minibatch_size: Number of samples that the value stands for: 1 = per sample,
            ``IGNORE`` = per minibatch of any size, ``None`` = not said, so that the learner's own
            ``minibatch_size`` decides.
        is_sweep_based: Whether ``starts`` counts sweeps.

    **Source:** CNTK's ``TrainingParameterSchedule``.
    """

    starts: tuple[int, ...]
    values: tuple[float, ...]
    minibatch_size: int | None = None
    is_sweep_based: bool = False

    def at(self, samples: int, sweeps: int = 0) -> float:
        """Return the value that holds after so many samples and sweeps."""
        if len(self.values) == 1:
            return self.values[0]
        count = sweeps if self.is_sweep_based else samples
        return self.values[bisect_right(self.starts, count) - 1]

    def starting_at(self, samples: int, sweeps: int) -> Schedule:
        """Return this schedule moved so that it begins now."""
        now = sweeps if self.is_sweep_based else samples
        starts = (0, *(now + start for start in self.starts[1:]))
        return replace(self, starts=starts)

    @property
    def reference_size(self) -> int:
        """Samples that the value stands for; 0 = any minibatch."""
        return self.minibatch_size or IGNORE

    def label(self, name: str) -> str:
        """Return how CNTK names a reported value, e.g. ``Momentum per 32 samples``."""
        if self.reference_size == IGNORE:
            return f"{name} per minibatch"
        return f"{name} per {self.reference_size} samples"

    def as_plain(self) -> dict[str, Any]:
        """Return the schedule in types that a ``weights_only`` checkpoint may hold."""
        return {
            "starts": list(self.starts),
            "values": list(self.values),
            "minibatch_size": self.minibatch_size,
            "is_sweep_based": self.is_sweep_based,
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Schedule:
        """Return the schedule that ``as_plain`` wrote."""
        return cls(**{**plain, "starts": tuple(plain["starts"]), "values": tuple(plain["values"])})


def learning_parameter_schedule(
    schedule: ScheduleValue | Schedule,
    minibatch_size: int | None = None,
    epoch_size: int | None = None,
) -> Schedule:
    """Make a schedule of a number or of a list.

    Args:
        schedule: A number; or a list whose items hold for one epoch each; or a list of pairs
            (number of epochs, value). The last value holds for ever.
        minibatch_size: Samples that the values stand for; ``IGNORE`` = per minibatch; ``None`` =
            the learner's own ``minibatch_size`` decides (and per minibatch, if it says nothing).
        epoch_size: Samples in an epoch; ``None`` = one sweep through the data.

    Returns:
        The schedule.

    Raises:
        ValueError: An empty list, an epoch count below 1, or a negative size: correct it.
        TypeError: Neither number nor list: pass one of these.

    **Source:** CNTK ``learning_parameter_schedule``.
    """
    if isinstance(schedule, Schedule):
        return (
            schedule if minibatch_size is None else replace(schedule, minibatch_size=minibatch_size)
        )
    for name, size in (("minibatch_size", minibatch_size), ("epoch_size", epoch_size)):
        if size is not None and size < 0:
            raise ValueError(f"{name} is {size}; give a number of samples")
    if isinstance(schedule, Real):
        return Schedule((0,), (float(schedule),), minibatch_size)
    if not isinstance(schedule, list | tuple):
        raise TypeError(f"a schedule is a number or a list, not {type(schedule).__name__}")
    if not schedule:
        raise ValueError("a schedule needs at least one value, this list is empty")
    pairs = [item if isinstance(item, Sequence) else (1, item) for item in schedule]
    starts, epochs = [], 0
    for number, (count, _) in enumerate(pairs, 1):
        # The last value holds for ever, and CNTK lets its number be 0.
        if int(count) != count or count < (number < len(pairs)):
            raise ValueError(f"a value must hold for a whole number of epochs, not {count}")
        starts.append(epochs * (epoch_size or 1))
        epochs += int(count)
    values = tuple(float(value) for _, value in pairs)
    return Schedule(tuple(starts), values, minibatch_size, is_sweep_based=not epoch_size)


def learning_parameter_schedule_per_sample(
    schedule: ScheduleValue, epoch_size: int | None = None
) -> Schedule:
    """Make a schedule whose values are meant per sample (CNTK's name).

    Args:
        schedule: As in ``learning_parameter_schedule``.
        epoch_size: Samples in an epoch; ``None`` = one sweep through the data.

    Returns:
        The schedule, with a reference minibatch size of 1.
    """
    return learning_parameter_schedule(schedule, 1, epoch_size)


def momentum_schedule(
    momentum: ScheduleValue, epoch_size: int | None = None, minibatch_size: int | None = None
) -> Schedule:
    """Make a schedule of momenta per minibatch, or per ``minibatch_size`` samples (CNTK's name).

    Args:
        momentum: As in ``learning_parameter_schedule``.
        epoch_size: Samples in an epoch; ``None`` = one sweep through the data.
        minibatch_size: Samples after which a gradient's weight has shrunk to ``momentum``.

    Returns:
        The schedule.
    """
    return learning_parameter_schedule(momentum, minibatch_size, epoch_size)


def momentum_schedule_per_sample(
    momentum: ScheduleValue, epoch_size: int | None = None
) -> Schedule:
    """Make a schedule of momenta per sample (CNTK's name).

    Args:
        momentum: As in ``learning_parameter_schedule``.
        epoch_size: Samples in an epoch; ``None`` = one sweep through the data.

    Returns:
        The schedule, with a reference minibatch size of 1.
    """
    return learning_parameter_schedule(momentum, 1, epoch_size)


def momentum_as_time_constant_schedule(
    time_constant: ScheduleValue, epoch_size: int | None = None
) -> Schedule:
    """Make a schedule of momenta from the samples in which a gradient fades to 1/e (CNTK's name).

    Args:
        time_constant: In samples, ≥ 0; a number or a list as in ``learning_parameter_schedule``.
        epoch_size: Samples in an epoch; ``None`` = one sweep through the data.

    Returns:
        The schedule of exp(-1 / time_constant), per sample.
    """
    schedule = learning_parameter_schedule(time_constant, 1, epoch_size)
    return _map_values(schedule, lambda samples: math.exp(-1 / samples) if samples else 0.0)


def as_schedule(
    value: ScheduleValue | Schedule, minibatch_size: int | None, epoch_size: int | None
) -> Schedule:
    """Return what a learner makes of its argument.

    A schedule that doesn't say which minibatch size it is meant for, a number and a list all
    take the learner's.
    """
    if isinstance(value, Schedule):
        if value.minibatch_size is None and minibatch_size is not None:
            return replace(value, minibatch_size=minibatch_size)
        return value
    return learning_parameter_schedule(value, minibatch_size, epoch_size)


def rate_for(value: float, reference_size: int, num_samples: int, is_mean: bool) -> float:
    """Return the factor of one update's gradient.

    Args:
        value: The schedule's current value.
        reference_size: Samples that the value stands for; 0 = any minibatch.
        num_samples: Samples in the global minibatch.
        is_mean: Whether the gradient was divided by ``num_samples`` first.

    Returns:
        The rate to multiply the sum (or, with ``is_mean``, the mean) of the gradients by.
    """
    if reference_size == IGNORE:
        return value if is_mean else value / num_samples
    return value * num_samples / reference_size if is_mean else value / reference_size


def momentum_for(value: float, reference_size: int, num_samples: int) -> float:
    """Return one update's momentum: the value as it is per minibatch, else its power.

    Args:
        value: The schedule's current value.
        reference_size: Samples that the value stands for; 0 = any minibatch.
        num_samples: Samples in the global minibatch.

    Returns:
        value ** (num_samples / reference_size), in double precision.
    """
    if reference_size == IGNORE:
        return value
    return math.pow(value, num_samples / reference_size)


def _map_values(schedule: Schedule, function: Callable[[float], float]) -> Schedule:
    return replace(schedule, values=tuple(map(function, schedule.values)))
