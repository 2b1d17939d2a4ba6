"""The part that all local learners share: schedules, what is done to gradients, and state."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Unpack, cast

import torch
from torch import Tensor

from tutorial_lib.learners.flat import Workspace
from tutorial_lib.learners.options import (
    NO_OPTIONS,
    Group,
    LearnerOptions,
    complete,
    is_mean,
    prepare,
    scheduled_apart,
    shrink,
)
from tutorial_lib.learners.schedules import (
    IGNORE,
    Schedule,
    ScheduleValue,
    as_schedule,
    momentum_for,
    rate_for,
)


class Learner(torch.optim.Optimizer):
    """A CNTK learner as a torch optimizer.

    Where torch's optimizers expect the mean gradient of a minibatch in ``.grad``, this one expects
    the *sum* over its samples, and is told how many they are. Rates and momenta are schedules that
    follow the number of samples seen. A torch ``LRScheduler`` may drive ``lr`` too: it sees the
    schedule's current value, and whoever changed the rate last has the say.

    Args:
        parameters: Tensors, or torch parameter groups; a group may set any keyword for itself.
        lr: Learning rate: a number, a list or a schedule.
        scheduled: Further scheduled values of the rule (momentum, ...).
        unit_gain: Whether the new gradient is weighted by 1 - momentum.
        constants: Further numbers of the rule (epsilon).
        options: See ``LearnerOptions``.

    Raises:
        ValueError: No parameters, the same one twice, or an option out of range: correct it.
        TypeError: An option that is none: see ``LearnerOptions``.

    **Distributed:** not collective. Ranks that update from equal gradients and counts stay equal,
    injected noise included.

    **Source:** CNTK 2.7's ``LearnerBase``.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: ScheduleValue | Schedule,
        scheduled: dict[str, ScheduleValue | Schedule] | None = None,
        unit_gain: bool = True,
        constants: dict[str, float] | None = None,
        **options: Unpack[LearnerOptions],
    ) -> None:
        unknown = options.keys() - LearnerOptions.__annotations__.keys()
        if unknown:
            raise TypeError(f"a learner has no option {', '.join(sorted(unknown))}")
        if options.get("minibatch_size") is None and options.pop("use_mean_gradient", False):
            options["minibatch_size"] = IGNORE
        values = {"lr": lr, "unit_gain": unit_gain, **NO_OPTIONS, **options}
        defaults = scheduled_apart({**values, **(scheduled or {}), **(constants or {})})
        self.total_number_of_samples_seen = 0
        self.total_number_of_sweeps_seen = 0
        self.noise_seed = 1
        self.is_updated = False
        self._spaces: dict[tuple[int, torch.dtype, torch.device], Workspace] = {}
        super().__init__(parameters, defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with keywords of their own; their momenta start from nothing.

        Args:
            param_group: ``{"params": tensors, keyword: value, ...}``.

        Raises:
            ValueError: A parameter twice, or an option out of range: correct it.
        """
        parameters = param_group["params"]
        if isinstance(parameters, Tensor):
            parameters = [parameters]
        elif not isinstance(parameters, set):  # which torch refuses
            parameters = list(parameters)
        if len({id(parameter) for parameter in parameters}) < len(parameters):
            raise ValueError("Learner's parameters list must not contain duplicates.")
        group = {**self.defaults, **scheduled_apart(param_group), "params": parameters}
        complete(group)
        group["lr"] = group["scheduled_lr"] = self._value(group["lr_schedule"])
        super().add_param_group(group)

    @property
    def parameters(self) -> list[Tensor]:
        """All parameters, group after group."""
        return [parameter for group in self.param_groups for parameter in group["params"]]

    def update(self, num_samples: int, is_sweep_end: bool = False) -> bool:
        """Update the parameters from the gradients' sum over a minibatch.

        Args:
            num_samples: Samples in the global minibatch, ≥ 1.
            is_sweep_end: Whether the minibatch ended a sweep through the data.

        Returns:
            Whether anything was updated: False where the rate is 0, and then nothing changes.

        Raises:
            ValueError: An empty minibatch: skip the update.
        """
        self.step(num_samples=num_samples)
        self.total_number_of_sweeps_seen += self.is_updated and is_sweep_end
        return self.is_updated

    @torch.no_grad()
    def step(  # type: ignore[override]  # adds a keyword
        self, closure: Callable[[], float] | None = None, *, num_samples: int = 1
    ) -> float | None:
        """Update as torch's own optimizers do.

        Args:
            closure: Computes the gradients again and returns the loss.
            num_samples: Samples that ``.grad`` is the sum over; 1 suits the gradient of a mean.

        Returns:
            What the closure returned.

        Raises:
            ValueError: ``num_samples`` below 1: skip the update.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if num_samples < 1:
            raise ValueError(f"cannot update from a minibatch of {num_samples} samples; skip it")
        self.is_updated = False
        for number, group in enumerate(self.param_groups):
            rate = self._rate(group, num_samples)
            if rate != 0:
                self._update_group(number, rate, num_samples)
                self.is_updated = True
        if self.is_updated:
            self.total_number_of_samples_seen += num_samples
        return loss

    def learning_rate(self) -> float:
        """Return the first group's learning rate as its schedule has it now."""
        group = self.param_groups[0]
        self._follow_schedule(group)
        return cast(float, group["lr"])

    def reset_learning_rate(self, lr: ScheduleValue | Schedule) -> None:
        """Replace every group's learning rate by a schedule that begins now.

        Args:
            lr: A number, a list or a schedule.
        """
        for group in self.param_groups:
            schedule = as_schedule(lr, group["minibatch_size"], group["epoch_size"]).starting_at(
                self.total_number_of_samples_seen, self.total_number_of_sweeps_seen
            )
            group["lr_schedule"] = schedule
            group["lr"] = group["scheduled_lr"] = self._value(schedule)

    def reset_smoothed_gradients(self) -> None:
        """Forget the gradients seen so far; samples and rates go on."""
        for state in self.state.values():
            for value in state.values():
                value.zero_()
        for group in self.param_groups:
            group["smoothed_count"] = 0.0

    def reported_parameters(self) -> dict[str, float]:
        """Return what CNTK reports before an update, e.g. ``Learning rate per 1 samples``."""
        group = self.param_groups[0]
        return {group["lr_schedule"].label("Learning rate"): self.learning_rate()}

    def state_dict(self) -> dict[str, Any]:
        """Return all that a later ``load_state_dict`` needs, in plain types and tensors."""
        state = super().state_dict()
        state["param_groups"] = [
            {
                name: value.as_plain() if isinstance(value, Schedule) else value
                for name, value in group.items()
            }
            for group in state["param_groups"]
        ]
        state["learner"] = self._counters()
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on exactly where ``state_dict`` was taken, its schedules included.

        Args:
            state_dict: From a learner of the same kind with the same parameter groups.

        Raises:
            ValueError: The state is another optimizer's or of other parameters: build the learner
                as it was when the state was saved.
        """
        if "learner" not in state_dict:
            raise ValueError("this is not a learner's state; it lacks the samples seen")
        groups = [
            {
                name: Schedule.from_plain(value) if name.endswith("_schedule") else value
                for name, value in group.items()
            }
            for group in state_dict["param_groups"]
        ]
        # A copy, or this learner would share its state with the one that the state was taken of.
        state = copy.deepcopy(state_dict["state"])
        super().load_state_dict({"state": state, "param_groups": groups})
        self.__dict__.update(state_dict["learner"])

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), **self._counters(), "is_updated": False, "_spaces": {}}

    @abstractmethod
    def _apply(self, group: Group, space: Workspace, rate: float, num_samples: int) -> None:
        """Apply the rule to the workspace's parameters.

        Products are rounded before they are added, as CNTK does: torch's ``add(alpha=)`` and
        ``addcmul`` round once, and where a large step ends near 0 the difference shows.
        """

    def _count_minibatch(self, group: Group, num_samples: int) -> None:
        """Update what the rule keeps once per update, not per parameter."""

    def _update_group(self, number: int, rate: float, num_samples: int) -> None:
        group = self.param_groups[number]
        self._count_minibatch(group, num_samples)
        parameters = [p for p in group["params"] if p.grad is not None]
        for space in self._workspaces(number, parameters):
            space.read_gradients()
            prepare(group, space, num_samples)
            self._apply(group, space, rate, num_samples)
        noise = self._value(group["gaussian_noise_injection_std_dev_schedule"])
        if noise > 0:
            self._inject_noise(parameters, noise)
        if group["l1_regularization_weight"] > 0:
            weight = group["l1_regularization_weight"]
            threshold = rate * weight * (1 if is_mean(group) else num_samples)
            shrink(parameters, threshold)

    def _workspaces(self, number: int, parameters: list[Tensor]) -> Iterable[Workspace]:
        """Return a workspace for each dtype and device among a group's parameters."""
        alike: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
        for parameter in parameters:
            alike.setdefault((parameter.dtype, parameter.device), []).append(parameter)
        for kind, members in alike.items():
            space = self._spaces.get((number, *kind))
            if space is None or not space.holds(members, self.state):
                space = self._spaces[number, *kind] = Workspace(members, self.state)
            yield space

    def _momentum(self, group: Group, num_samples: int, name: str = "momentum") -> float:
        schedule = group[f"{name}_schedule"]
        return momentum_for(self._value(schedule), schedule.reference_size, num_samples)

    def _rate(self, group: Group, num_samples: int) -> float:
        self._follow_schedule(group)
        size = group["lr_schedule"].reference_size
        return rate_for(group["lr"], size, num_samples, is_mean(group))

    def _follow_schedule(self, group: Group) -> None:
        scheduled = self._value(group["lr_schedule"])
        if scheduled != group["scheduled_lr"]:
            group["lr"] = group["scheduled_lr"] = scheduled

    def _value(self, schedule: Schedule) -> float:
        return schedule.at(self.total_number_of_samples_seen, self.total_number_of_sweeps_seen)

    def _inject_noise(self, parameters: list[Tensor], std_dev: float) -> None:
        for parameter in parameters:
            # Seeded by a counter, not from a stream, so that all ranks add the same noise.
            generator = torch.Generator(parameter.device).manual_seed(self.noise_seed)
            self.noise_seed += 1
            noise = torch.empty_like(parameter).normal_(0, std_dev, generator=generator)
            parameter.add_(noise)

    def _counters(self) -> dict[str, Any]:
        names = ("total_number_of_samples_seen", "total_number_of_sweeps_seen", "noise_seed")
        return {name: getattr(self, name) for name in names}
