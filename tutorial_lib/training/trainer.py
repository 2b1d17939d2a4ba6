"""The training step: a minibatch's loss, its gradient summed over the ranks, an update."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeGuard

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tutorial_lib.distributed.data_parallel import data_parallel, start_equal
from tutorial_lib.learners.distributed_learner import (
    DistributedLearner,
    check_learners,
    check_parameters,
    gradient_hook,
    metric_aggregator,
)
from tutorial_lib.learners.learner import Learner
from tutorial_lib.training.criterion import LOSS, METRIC, SAMPLES, Criterion, as_metrics
from tutorial_lib.training.evaluation import evaluation_mode
from tutorial_lib.training.progress_writer import ProgressWriter
from tutorial_lib.training.trainer_state import restore_from_checkpoint, save_checkpoint

Piece = tuple[tuple[Any, ...], dict[str, Any]]  # what the criterion gets, by place and by name


class Trainer:
    """Trains one model by one criterion, alone or on all ranks at once.

    The model is a plain module. With a data-parallel learner in a session of several ranks it is
    wrapped so that gradients are **summed** over the ranks, and the learner is told how many
    samples that sum covers; so N ranks with b samples each do the update of one rank with N * b.

    Args:
        model: What is trained; the learners' parameters are its own.
        criterion: ``criterion(model, *args)`` returns one loss per sample, (n_local,), or the
            losses and a metric per sample, or the losses and a dict of metrics, which has the
            same names on all ranks. It must call the model it is given, exactly once.
        parameter_learners: A learner or several; no parameter in two of them. Of several
            distributed ones, one must be marked by ``set_as_metric_aggregator()``.
        progress_writers: Told of every minibatch.

    Raises:
        ValueError: A parameter belongs to two learners or is not the model's, or the learners
            can't train together: the message says what to change.

    **Distributed:** collective when a learner is distributed.

    **Source:** CNTK's ``Trainer(model, criterion, parameter_learners, progress_writers)``.
    """

    def __init__(
        self,
        model: nn.Module,
        criterion: Criterion,
        parameter_learners: Learner | DistributedLearner | Sequence[Learner | DistributedLearner],
        progress_writers: Iterable[ProgressWriter] = (),
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
        self._samples_at_last_sync = 0
        check_parameters(model, self.parameter_learners)
        check_learners(self.parameter_learners)
        distributed = list(filter(_is_distributed, self.parameter_learners))
        self._model = model
        if any(learner.sums_gradients for learner in distributed):
            self._model = data_parallel(model, gradient_hook(distributed))
        elif distributed:
            start_equal(model)

    def train_minibatch(self, *args: Any, is_sweep_end: bool = False, **named: Any) -> bool:
        """Train on one minibatch: this rank's part of it.

        Args:
            *args: For the criterion. A part of no samples is legal while other ranks have some.
                No arguments at all mean that the data are over, on all ranks.
            is_sweep_end: Whether the global minibatch ended a sweep through the data; schedules
                without an ``epoch_size`` count sweeps.
            **named: For the criterion, by name.

        Returns:
            Whether any learner updated a parameter; False when no rank has a sample.

        **Distributed:** collective when a learner is distributed; the averages and counts are
        then equal on all ranks.
        """
        pieces = [(args, named)] if args or named else []
        return self._train(pieces, is_sweep_end)

    def train_pieces(self, pieces: Sequence[tuple[Any, ...]], is_sweep_end: bool = False) -> bool:
        """Train on one minibatch that comes in pieces: their gradients are added up.

        For minibatches whose activations don't fit into memory at once. The ranks exchange
        gradients with the last piece only.

        Args:
            pieces: One or more, each as for ``train_minibatch``; their number may differ between
                ranks.
            is_sweep_end: As for ``train_minibatch``.

        Returns:
            As ``train_minibatch``.

        **Distributed:** as ``train_minibatch``.
        """
        return self._train([(piece, {}) for piece in pieces], is_sweep_end)

    def _train(self, pieces: Sequence[Piece], is_sweep_end: bool) -> bool:
        aggregator = metric_aggregator(self.parameter_learners)
        are_summed = [_is_synchronizing(learner) for learner in self.parameter_learners]
        is_sum_reported = aggregator is not None and aggregator.is_synchronizing
        for learner in self.parameter_learners:
            for parameter in learner.parameters:
                parameter.grad = None
        own = torch.zeros(2, dtype=torch.float64)
        summing: _Summing | None = None
        metrics: Iterable[str] = (LOSS, SAMPLES)
        for number, (args, named) in enumerate(pieces, 1):
            is_last = number == len(pieces)
            with nullcontext() if is_last else _alone(self._model):
                losses, metrics = as_metrics(self.criterion(self._model, *args, **named))
                sums = torch.stack([value.detach().sum().double() for value in metrics.values()])
                own = sums if number == 1 else own + sums
                loss = losses.sum()
                # Of losses without a graph, backward says by itself what is wrong.
                if is_last and any(are_summed) and loss.requires_grad:
                    summing = _Summing(own)
                    loss.register_hook(summing.begin)
                loss.backward()
        mine = all_ranks = dict(zip(metrics, own.tolist(), strict=True))
        if summing is not None:
            all_ranks = dict(zip(metrics, summing.result(), strict=True))
        for writer in self.progress_writers:
            writer.log_learning_rate(*self.parameter_learners)
        updated = [
            _update(learner, int((all_ranks if is_summed else mine)[SAMPLES]), is_sweep_end)
            for learner, is_summed in zip(self.parameter_learners, are_summed, strict=True)
        ]
        torch.clear_autocast_cache()  # a caller's own autocast would go on with the old weights
        self._note(all_ranks if is_sum_reported else mine, is_sum_reported, aggregator)
        return any(updated)

    def _note(
        self, sums: dict[str, float], is_summed: bool, aggregator: DistributedLearner | None
    ) -> None:
        """Remember a minibatch and tell the progress writers of it."""
        metrics = dict(sums)
        self._loss_sum, self._samples = metrics.pop(LOSS), int(metrics.pop(SAMPLES))
        self.previous_minibatch_metric_sums = metrics
        expected = self.total_number_of_samples_seen + self._samples
        seen = aggregator.total_number_of_samples_seen if aggregator else expected
        self.total_number_of_samples_seen = seen
        # A learner that sums no gradients has met the others when its total jumps to theirs.
        is_synchronized = is_summed or seen != expected
        for writer in self.progress_writers:
            if is_synchronized:
                writer.update_distributed(seen - self._samples_at_last_sync)
            writer.update(self._samples, self._loss_sum, metrics.get(METRIC))
        if is_synchronized:
            self._samples_at_last_sync = seen

    def start_at(self, samples: int) -> None:
        """Count from so many samples on, which all ranks have seen together."""
        self.total_number_of_samples_seen = self._samples_at_last_sync = samples

    @property
    def previous_minibatch_sample_count(self) -> int:
        """Samples of the last minibatch; of all ranks when a learner sums over them."""
        return self._samples

    @property
    def previous_minibatch_loss_average(self) -> float:
        """Mean loss per sample of the last minibatch, before its update.

        Raises:
            RuntimeError: There was none, or it had no sample; ask for the count first.
        """
        return self._average(self._loss_sum)

    @property
    def previous_minibatch_evaluation_average(self) -> float:
        """Mean metric per sample of the last minibatch, before its update; nan without one.

        Raises:
            RuntimeError: There was none, or it had no sample; ask for the count first.
        """
        return self._average(self.previous_minibatch_metric_sums.get(METRIC, math.nan))

    def _average(self, total: float) -> float:
        if self._samples == 0:
            raise RuntimeError(
                "There was no preceding call to TrainMinibatch or the minibatch was empty."
            )
        return total / self._samples

    def summarize_training_progress(self) -> None:
        """Let the progress writers print their summary and start afresh."""
        for writer in self.progress_writers:
            writer.summarize()

    def test_minibatch(self, *args: Any, **named: Any) -> float:
        """Measure the model on one minibatch, this rank's part of it, and learn nothing.

        Layers are in evaluation mode: nothing is dropped, running statistics stay. Nor does what
        is drawn at random here change what training draws later.

        Args:
            *args: For the criterion, as in ``train_minibatch``; it must return a metric.
            **named: For the criterion, by name.

        Returns:
            Mean metric per sample, of all ranks' samples; nan over none.

        Raises:
            ValueError: There is no metric: let the criterion return the losses and a metric.

        **Distributed:** collective when a learner is distributed; equal on all ranks.
        """
        total, samples = self.test_sums(*args, **named)
        return total / samples if samples else math.nan

    @torch.no_grad()
    def test_sums(self, *args: Any, **named: Any) -> tuple[float, int]:
        """As ``test_minibatch``, but return the metric's sum and the samples it is over."""
        gpus = [p.device for p in self.training_network.parameters() if p.is_cuda][:1]
        with torch.random.fork_rng(devices=gpus), evaluation_mode(self.training_network):
            _, metrics = as_metrics(self.criterion(self.training_network, *args, **named))
        if METRIC not in metrics:
            raise ValueError(
                "Cannot test when no evaluation function was specified: let the criterion return "
                "(losses, metric), one of each per sample"
            )
        sums = torch.stack([metrics[name].sum().double() for name in (METRIC, SAMPLES)])
        if any(map(_is_distributed, self.parameter_learners)):
            dist.all_reduce(sums)
        total, samples = sums.tolist()
        for writer in self.progress_writers:
            writer.update_test(int(samples), total)
        return total, int(samples)

    def summarize_test_progress(self) -> None:
        """Let the progress writers print their summary of the test and start afresh."""
        for writer in self.progress_writers:
            writer.summarize_test()

    def save_checkpoint(self, path: str | os.PathLike[str], external_state: Any = None) -> None:
        """Write all that ``restore_from_checkpoint`` needs, and this rank's ``external_state``.

        See ``trainer_state``. **Distributed:** collective.
        """
        save_checkpoint(self, path, external_state)

    def restore_from_checkpoint(self, path: str | os.PathLike[str]) -> Any:
        """Go on from a checkpoint, and return this rank's external state.

        See ``trainer_state``. **Distributed:** collective.
        """
        return restore_from_checkpoint(self, path)


class _Summing:
    """A sum over the ranks that begins with a backward, and is complete about when that is.

    Begun just before, it would have a thread of its own, which takes more of the core than it is
    worth for a few bytes.
    """

    def __init__(self, values: torch.Tensor) -> None:
        self._values = values.clone()
        self._work: dist.Work | None = None

    def begin(self, gradient: torch.Tensor) -> None:
        """Begin; a hook for the loss. **Distributed:** collective."""
        self._work = dist.all_reduce(self._values, async_op=True)

    def result(self) -> list[float]:
        """Wait for the sums, and return them."""
        assert self._work is not None  # backward has begun it
        self._work.wait()
        return self._values.tolist()


def _is_distributed(learner: Learner | DistributedLearner) -> TypeGuard[DistributedLearner]:
    return isinstance(learner, DistributedLearner) and learner.is_distributed


def _is_synchronizing(learner: Learner | DistributedLearner) -> bool:
    return isinstance(learner, DistributedLearner) and learner.is_synchronizing


def _update(learner: Learner | DistributedLearner, samples: int, is_sweep_end: bool) -> bool:
    """Update; a distributed learner must hear of an empty minibatch too."""
    if samples == 0 and isinstance(learner, Learner):
        return False
    return learner.update(samples, is_sweep_end)


def _alone(model: nn.Module) -> AbstractContextManager[None]:
    """Within the block, backward adds to this rank's own gradients and sends nothing."""
    return model.no_sync() if isinstance(model, DistributedDataParallel) else nullcontext()
