"""The training step: a minibatch's loss, its gradient summed over the ranks, an update."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tutorial_lib.distributed.data_parallel import data_parallel
from tutorial_lib.learners.data_parallel import DistributedLearner
from tutorial_lib.learners.learner import Learner
from tutorial_lib.training.progress import ProgressPrinter

# (n_local,) losses, or such losses and a metric of the same shape, or several by name
PerSample = (
    torch.Tensor
    | tuple[torch.Tensor, torch.Tensor]
    | tuple[torch.Tensor, Mapping[str, torch.Tensor]]
)
Criterion = Callable[..., PerSample]

METRIC = "metric"  # the name of the one metric that has none
_LOSS, _SAMPLES = "loss per sample", "number of samples"


class Trainer:
    """Trains one model by one criterion, alone or on all ranks at once.

    The model is a plain module. With a distributed learner in a session of several ranks it is
    wrapped so that gradients are **summed** over the ranks, and the learner is told how many
    samples that sum covers; so N ranks with b samples each do the update of one rank with N * b.

    Args:
        model: What is trained; the learners' parameters are its own.
        criterion: ``criterion(model, *args)`` returns one loss per sample, (n_local,), or the
            losses and a metric per sample, or the losses and a dict of metrics, which has the
            same names on all ranks. It must call the model it is given, exactly once.
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
        # In this process, numbers below 1e-38 count as zero from now on: a processor may take a
        # hundred times as long for each, and a sure discriminator's gradients are full of them.
        torch.set_flush_denormal(True)
        if isinstance(parameter_learners, Learner | DistributedLearner):
            parameter_learners = [parameter_learners]
        self.training_network = model
        self.criterion = criterion
        self.parameter_learners = list(parameter_learners)
        self.progress_writers = list(progress_writers)
        self.total_number_of_samples_seen = 0
        self._loss_sum = 0.0  # of the last minibatch, and so are the following
        self._samples = 0
        self.previous_minibatch_metric_sums: dict[str, float] = {}
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
        return self.train_pieces([args])

    def train_pieces(self, pieces: Sequence[tuple[Any, ...]]) -> bool:
        """Train on one minibatch that comes in pieces: their gradients are added up.

        For minibatches whose activations don't fit into memory at once. The ranks exchange
        gradients with the last piece only.

        Args:
            pieces: One or more, each as for ``train_minibatch``; their number may differ between
                ranks.

        Returns:
            As ``train_minibatch``.

        **Distributed:** as ``train_minibatch``.
        """
        for learner in self.parameter_learners:
            for parameter in learner.parameters:
                parameter.grad = None
        sums = None
        for number, args in enumerate(pieces, 1):
            is_last = number == len(pieces)
            with _alone(self._model) if not is_last else nullcontext():
                losses, metrics = _as_metrics(self.criterion(self._model, *args))
                own = torch.stack([value.detach().sum().double() for value in metrics.values()])
                sums = own if sums is None else sums + own
                if is_last and self._distributed:
                    # Starts now and travels while backward computes.
                    summing = dist.all_reduce(sums, async_op=True)
                losses.sum().backward()
        assert sums is not None
        if self._distributed:
            assert summing is not None  # only a rank outside the group gets no work
            summing.wait()
        named = dict(zip(metrics, sums.tolist(), strict=True))
        self._loss_sum, self._samples = named.pop(_LOSS), int(named.pop(_SAMPLES))
        self.previous_minibatch_metric_sums = named
        if self._samples == 0:
            return False
        updated = [learner.update(self._samples) for learner in self.parameter_learners]
        self.total_number_of_samples_seen += self._samples
        for writer in self.progress_writers:
            writer.update(self._samples, self._loss_sum, named.get(METRIC))
        return any(updated)

    @property
    def previous_minibatch_sample_count(self) -> int:
        """Samples of the last minibatch; of all ranks when a learner is distributed."""
        return self._samples

    @property
    def previous_minibatch_loss_average(self) -> float:
        """Mean loss per sample of the last minibatch, before its update; nan if it was empty."""
        return self._average(self._loss_sum)

    @property
    def previous_minibatch_evaluation_average(self) -> float:
        """Mean metric per sample of the last minibatch, before its update; nan without one."""
        return self._average(self.previous_minibatch_metric_sums.get(METRIC, math.nan))

    def _average(self, total: float) -> float:
        return total / self._samples if self._samples else math.nan

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


def _alone(model: nn.Module) -> AbstractContextManager[None]:
    """Within the block, backward adds to this rank's own gradients and sends nothing."""
    return model.no_sync() if isinstance(model, DistributedDataParallel) else nullcontext()


def _as_metrics(result: PerSample) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Split a criterion's result into the losses and all that is to be summed up, by name."""
    losses, metrics = result if isinstance(result, tuple) else (result, {})
    if isinstance(metrics, torch.Tensor):
        metrics = {METRIC: metrics}
    counted = {_LOSS: losses, _SAMPLES: torch.tensor(losses.numel(), device=losses.device)}
    return losses, {**counted, **dict(sorted(metrics.items()))}
