"""The training step: a minibatch's loss, its gradient summed over the ranks, an update."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from tutorial_lib.distributed.data_parallel import data_parallel
from tutorial_lib.learners.data_parallel import DistributedLearner
from tutorial_lib.learners.learner import Learner
from tutorial_lib.training.progress import ProgressPrinter

# (n_local,) losses, or such losses and a metric of the same shape
PerSample = torch.Tensor | tuple[torch.Tensor, torch.Tensor]
Criterion = Callable[..., PerSample]


class Trainer:
    """Trains one model by one criterion, alone or on all ranks at once.

    The model is a plain module. With a distributed learner in a session of several ranks it is
    wrapped so that gradients are **summed** over the ranks, and the learner is told how many
    samples that sum covers; so N ranks with b samples each do the update of one rank with N * b.

    Args:
        model: What is trained; the learners' parameters are its own.
        criterion: ``criterion(model, *args)`` returns one loss per sample, (n_local,), or the
            losses and a metric per sample. It must call the model it is given, exactly once.
        parameter_learners: A learner or several; no parameter in two of them.
        progress_writers: Told of every minibatch.

    Raises:
        ValueError: A parameter belongs to two learners or is not the model's; a distributed
            learner is mixed with a local one.

    **Distributed:** collective when a learner is distributed.

    **Source:** CNTK's ``Trainer(model, criterion, parameter_learners, progress_writers)``.
    """

    def __init__(
        self,
        model: nn.Module,
        criterion: Criterion,
        parameter_learners: Learner | DistributedLearner | Sequence[Learner | DistributedLearner],
        progress_writers: Iterable[ProgressPrinter] = (),
    ) -> None:
        if isinstance(parameter_learners, Learner | DistributedLearner):
            parameter_learners = [parameter_learners]
        self.training_network = model
        self.criterion = criterion
        self.parameter_learners = list(parameter_learners)
        self.progress_writers = list(progress_writers)
        self.total_number_of_samples_seen = 0
        self._sums = [0.0, 0.0, 0.0]  # loss, metric, samples of the last minibatch
        self._has_metric = False
        self._model = model
        self._check_parameters()
        self._distributed = [
            learner
            for learner in self.parameter_learners
            if isinstance(learner, DistributedLearner) and learner.is_distributed
        ]
        if self._distributed:
            self._model = data_parallel(model, self._distributed[0].comm_hook)

    def train_minibatch(self, *args: Any) -> bool:
        """Train on one minibatch: this rank's part of it.

        Args:
            *args: For the criterion. A part of no samples is legal while other ranks have some.

        Returns:
            Whether any learner updated a parameter; False when no rank has a sample.

        **Distributed:** collective when a learner is distributed; the averages and counts are
        then equal on all ranks.
        """
        for learner in self.parameter_learners:
            for parameter in learner.parameters:
                parameter.grad = None
        result = self.criterion(self._model, *args)
        losses, metrics = result if isinstance(result, tuple) else (result, None)
        self._has_metric = metrics is not None
        sums = torch.zeros(3, dtype=torch.float64)
        sums[0] = losses.detach().sum()
        if metrics is not None:
            sums[1] = metrics.detach().sum()
        sums[2] = losses.numel()
        # Starts now and travels while backward computes.
        summing = dist.all_reduce(sums, async_op=True) if self._distributed else None
        losses.sum().backward()
        if summing is not None:
            summing.wait()
        self._sums = sums.tolist()
        samples = self.previous_minibatch_sample_count
        if samples == 0:
            return False
        updated = [learner.update(samples) for learner in self.parameter_learners]
        self.total_number_of_samples_seen += samples
        for writer in self.progress_writers:
            writer.update(samples, self._sums[0], self._sums[1] if self._has_metric else None)
        return any(updated)

    @property
    def previous_minibatch_sample_count(self) -> int:
        """Samples of the last minibatch; of all ranks when a learner is distributed."""
        return int(self._sums[2])

    @property
    def previous_minibatch_loss_average(self) -> float:
        """Mean loss per sample of the last minibatch, before its update; nan if it was empty."""
        return self._average(0)

    @property
    def previous_minibatch_evaluation_average(self) -> float:
        """Mean metric per sample of the last minibatch, before its update; nan without one."""
        return self._average(1) if self._has_metric else float("nan")

    def _average(self, place: int) -> float:
        return self._sums[place] / self._sums[2] if self._sums[2] else float("nan")

    def summarize_training_progress(self) -> None:
        """Let the progress writers print their summary and start afresh."""
        for writer in self.progress_writers:
            writer.summarize()

    def _check_parameters(self) -> None:
        names = {id(value): name for name, value in self.training_network.named_parameters()}
        taken: set[int] = set()
        for learner in self.parameter_learners:
            for parameter in learner.parameters:
                if id(parameter) not in names:
                    raise ValueError(
                        f"a learner has a parameter of shape {tuple(parameter.shape)} that is not "
                        "the model's: make the learner from model.parameters()"
                    )
                if id(parameter) in taken:
                    raise ValueError(
                        f"parameter {names[id(parameter)]!r} belongs to two learners: "
                        "give each parameter to one"
                    )
                taken.add(id(parameter))
        kinds = {isinstance(learner, DistributedLearner) for learner in self.parameter_learners}
        if len(kinds) > 1:
            raise ValueError(
                "Cannot use a non-distributed learner for some parameters together with a "
                "distributed learner for other parameters, in a single Trainer."
            )
