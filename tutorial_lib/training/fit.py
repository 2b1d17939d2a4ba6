"""TensorLayer's distributed Trainer: one model, unchanged, from one process to many ranks."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from tutorial_lib.data.datasets import Split
from tutorial_lib.data.pipeline import BatchMap, Pipeline
from tutorial_lib.distributed import session
from tutorial_lib.learners.data_parallel import data_parallel_distributed_learner
from tutorial_lib.learners.learner import Learner
from tutorial_lib.learners.scaling import (
    Scaling,
    default_warm_up_steps,
    scaling_factor,
    warm_up,
)
from tutorial_lib.learners.torch_optimizer import OptimizerLearner, torch_names
from tutorial_lib.training import trainer as step
from tutorial_lib.training.budget import Budget
from tutorial_lib.training.callbacks import CHECKPOINT_INTERVAL_S, Callback, Checkpoint
from tutorial_lib.training.compilation import compile_network
from tutorial_lib.training.evaluation import EvaluationFunc, evaluate
from tutorial_lib.training.fit_criterion import SAVE, STOP, FitCriterion, TrainingFunc, cut
from tutorial_lib.training.fit_state import FILE_NAME, restore_state, save_state
from tutorial_lib.training.logs import StepLog
from tutorial_lib.training.random_stream import RandomStream

Data = Split | tuple[torch.Tensor, torch.Tensor]


class Trainer:
    """Trains a model with a torch optimizer, alone or on all ranks at once.

    A second face of the same step as CNTK's ``training.trainer.Trainer``, which it drives. Each
    rank brings ``batch_size`` samples, and the update is that of one rank with all of them::

        trainer = Trainer(network, data, training_func, torch.optim.Adam, {"lr": 1e-3})
        trainer.train_to_end()                              # or
        trainer.train_and_validate_to_end(50)               # or a loop of your own:
        while not trainer.should_stop():
            print(trainer.train_on_batch())

    Args:
        network: A plain module.
        training_dataset: A ``Split`` or ``(x, y)``, whole on every rank; equal on all ranks.
        build_training_func: ``build_training_func(network, x, y)`` returns the loss, or the loss
            and a dict of what to log. Each is a mean over the minibatch, a scalar, or one value
            per sample. It calls the network it is given exactly once.
        optimizer: A class or function, called with the parameters and ``optimizer_args``.
        optimizer_args: Its keywords, which stay as they are; ``learning_rate`` is ``lr``.
        batch_size: Samples of each rank in a step.
        prefetch_size: Minibatches that are prepared while the current one trains; None for none.
        checkpoint_dir: Rank 0 saves there every ``checkpoint_interval_s`` and at the end; what
            is there already is restored now, on all ranks.
        scaling_learning_rate: How the rate grows with the ranks; see
            ``learners.scaling.scaling_factor``.
        log_step_size: Steps from line to line, on rank 0; 0 prints nothing.
        validation_dataset: As ``training_dataset``.
        build_validation_func: ``build_validation_func(network, x, y)`` returns a dict, as above.
        max_iteration: Steps of all ranks together: each makes its share of them. inf for no limit.
        epochs: Times through the data; None for one, or for as many as ``max_iteration`` takes.
        warmup_steps: Steps from the unscaled to the scaled rate; None for 5 epochs, but at most a
            tenth of the training.
        batch_map: Augmentation of this rank's samples; see ``data.pipeline.Pipeline``.
        validation_map: What it becomes in validation: ``validation_map(x)``.
        seed: Of order, augmentation and dropout. Equal on all ranks; dropout differs.
        accumulation: Pieces of ``batch_size`` whose gradients make one step.
        max_gradient_norm: Longest gradient, of all parameters as one vector; inf for any.
        autocast: Type for matrix products, such as ``torch.bfloat16``; None for float32.
        compile: Whether to compile the network; True where there is a C++ compiler, or the name
            of one of ``torch.compile``'s backends.
        callbacks: See ``training.callbacks``.
        checkpoint_interval_s: Seconds.

    Raises:
        ValueError: An argument out of range; correct it.
        DataError: The checkpoint is damaged or another network's; move it away.

    **Distributed:** collective, and so is every method that says so. The ranks' session is opened
    if it isn't open.

    **Source:** TensorLayer 1.11's ``tensorlayer.distributed.Trainer``.
    """

    def __init__(
        self,
        network: nn.Module,
        training_dataset: Data,
        build_training_func: TrainingFunc,
        optimizer: Callable[..., torch.optim.Optimizer],
        optimizer_args: Mapping[str, Any] | None = None,
        batch_size: int = 32,
        prefetch_size: int | None = None,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        scaling_learning_rate: Scaling = True,
        log_step_size: int = 1,
        validation_dataset: Data | None = None,
        build_validation_func: EvaluationFunc | None = None,
        max_iteration: float = math.inf,
        *,
        epochs: int | None = None,
        warmup_steps: int | None = None,
        batch_map: BatchMap | None = None,
        validation_map: Callable[[torch.Tensor], torch.Tensor] | None = None,
        seed: int = 0,
        accumulation: int = 1,
        max_gradient_norm: float = math.inf,
        autocast: torch.dtype | None = None,
        compile: bool | str = False,
        callbacks: Sequence[Callback] = (),
        checkpoint_interval_s: float = CHECKPOINT_INTERVAL_S,
    ) -> None:
        if min(batch_size, accumulation) < 1:
            raise ValueError("batch_size and accumulation are 1 or more")
        self.ranks = session.start()
        self.training_network = network.to(self.ranks.device)
        self.build_validation_func = build_validation_func
        self.validation_dataset = validation_dataset
        self.validation_map = validation_map
        self.batch_size = batch_size
        self.accumulation = accumulation
        self.global_step = 0
        self.logs: dict[str, float] = {}
        world_size = self.ranks.world_size
        size, partition = batch_size * accumulation * world_size, (world_size, self.ranks.rank)
        self.pipeline = Pipeline(
            training_dataset, size, partition, seed, batch_map, prefetch_size or 0
        )
        self.budget = Budget.of(max_iteration, epochs, world_size)
        factor = scaling_factor(scaling_learning_rate, world_size)
        if warmup_steps is None:
            warmup_steps = default_warm_up_steps(factor, self.steps_per_epoch, self.total_steps)
        self.learner = OptimizerLearner(
            optimizer(network.parameters(), **torch_names(optimizer_args or {})),
            max_gradient_norm,
            warm_up(factor, warmup_steps),
        )
        self.random = RandomStream(seed, self.ranks.rank, self.ranks.device)
        compile_network(network, compile)
        self.criterion = FitCriterion(build_training_func, autocast)
        # An optimizer's learner has all that a distributed one asks of a CNTK learner.
        learner = data_parallel_distributed_learner(cast(Learner, self.learner))
        self._step = step.Trainer(network, self.criterion, learner)
        self.callbacks = [StepLog(log_step_size), *callbacks]
        self._is_stopped = self._is_save_due = self._has_started = False
        self._measured: dict[int, dict[str, float]] = {}
        if log_step_size and self.is_master:
            print(self._plan(factor, warmup_steps), flush=True)
        if checkpoint_dir is not None:
            self.callbacks.append(Checkpoint(checkpoint_dir, checkpoint_interval_s))
            if restore_state(self, Path(checkpoint_dir) / FILE_NAME) and self.is_master:
                print(f"restored step {self.global_step} from {checkpoint_dir}", flush=True)

    @property
    def is_master(self) -> bool:
        """Whether this is rank 0, which prints and saves."""
        return self.ranks.is_main

    @property
    def steps_per_epoch(self) -> int:
        """Steps once through the data."""
        return self.pipeline.steps_per_sweep

    @property
    def total_steps(self) -> float:
        """Steps from the beginning to the end, on each rank; inf if only a stop ends it."""
        return self.budget.total_steps(self.steps_per_epoch)

    @property
    def epoch(self) -> float:
        """How many times through the data so far."""
        source = self.pipeline.state_dict()["source"]
        return source["position"] / source["num_samples"]

    @property
    def learning_rate(self) -> float:
        """Of the next step, scaled and warmed up."""
        return self.learner.learning_rate()

    @property
    def validation_metrics(self) -> dict[str, float]:
        """Means over the whole validation set with the weights as they are now.

        Measured when they are first asked for at a step, and then remembered; nothing that
        training depends on changes.

        Raises:
            AttributeError: Validation is not setup: pass ``validation_dataset`` and
                ``build_validation_func``.

        **Distributed:** collective; equal on all ranks.
        """
        dataset, func = self._validation()
        # Counts the changes of the weights, by whomever.
        version = sum(parameter._version for parameter in self.training_network.parameters())
        if version not in self._measured:
            self._measured = {version: self.evaluate(dataset, func)}
        return dict(self._measured[version])

    def evaluate(self, dataset: Data, func: EvaluationFunc) -> dict[str, float]:
        """Measure the network as it is on another data set; see ``training.evaluation.evaluate``.

        **Distributed:** collective; equal on all ranks.
        """
        data = (dataset.images, dataset.labels) if isinstance(dataset, Split) else dataset
        size, autocast = self.batch_size, self.criterion.autocast
        network, ranks = self.training_network, self.ranks
        return evaluate(network, func, data, ranks, size, self.validation_map, autocast)

    def should_stop(self) -> bool:
        """Whether the training is over: no steps or samples are left, or it was stopped."""
        return self._is_stopped or self.budget.is_spent(self.global_step, self.epoch)

    def stop(self) -> None:
        """Make this step the last one. Every rank must call it at the same step."""
        self._is_stopped = True

    def request_stop(self) -> None:
        """Make the next step the last one, on all ranks, whichever rank asks for it."""
        self.criterion.requests.add(STOP)

    def request_checkpoint(self) -> None:
        """Save the checkpoints after the next step, whichever rank asks for it."""
        self.criterion.requests.add(SAVE)

    def train_on_batch(self) -> dict[str, float]:
        """Make one step.

        Returns:
            Its loss and logs before the update, means over all ranks' samples.

        Raises:
            RuntimeError: The training is over: ask ``should_stop()`` first.

        **Distributed:** collective; the result is equal on all ranks.
        """
        self._advance()
        self._finish_step()
        return self.logs

    def train_to_end(self) -> None:
        """Make all steps that are left. **Distributed:** collective."""
        for _ in self:
            pass

    def train_and_validate_to_end(self, validate_step_size: int = 50) -> None:
        """Make all steps that are left, and validate every so many, and after the last.

        Args:
            validate_step_size: Steps between two validations.

        Raises:
            AttributeError: Validation is not setup: see ``validation_metrics``.

        **Distributed:** collective.
        """
        self._validation()
        while not self.should_stop():
            self._advance()
            if self.global_step % validate_step_size == 0 or self.should_stop():
                for callback in self.callbacks:
                    callback.on_validation(self, self.validation_metrics)
            self._finish_step()

    def __iter__(self) -> Iterator[dict[str, float]]:
        """Make a step for each turn of a loop, until the end; yields what it measured."""
        while not self.should_stop():
            yield self.train_on_batch()

    def _advance(self) -> None:
        if self.should_stop():
            raise RuntimeError(f"the training is over; it ended with step {self.global_step}")
        if not self._has_started:
            self._has_started = True
            for callback in self.callbacks:
                callback.on_start(self)
        pieces = cut(self.pipeline.next(), self.accumulation, self.ranks.device)
        with self.random.active():
            self._step.train_pieces(pieces)
        self.global_step += 1
        sums = dict(self._step.previous_minibatch_metric_sums)
        self._is_stopped, self._is_save_due = (sums.pop(name) > 0 for name in (STOP, SAVE))
        count = self._step.previous_minibatch_sample_count
        means = {name: total / count for name, total in sums.items()}
        self.logs = {"loss": self._step.previous_minibatch_loss_average, **means}
        for callback in self.callbacks:
            callback.on_step(self)

    def _finish_step(self) -> None:
        """Save after all that belongs to the step, so that a resumed training misses nothing."""
        for callback in self.callbacks:
            if isinstance(callback, Checkpoint) and (self._is_save_due or callback.is_due(self)):
                save_state(self, callback.path)
        if self.should_stop():
            self.pipeline.close()
            for callback in self.callbacks:
                callback.on_end(self)

    def _validation(self) -> tuple[Data, EvaluationFunc]:
        if self.validation_dataset is None or self.build_validation_func is None:
            raise AttributeError("Validation is not setup.")
        return self.validation_dataset, self.build_validation_func

    def _plan(self, factor: float, warmup_steps: int) -> str:
        count = self.ranks.world_size
        rate = f"learning rate {self.learner.base_rate:g}"
        if factor != 1:
            rate += f" x {factor:g}" + f" after {warmup_steps} steps" * bool(warmup_steps)
        return (
            f"{count} rank{'s' * (count > 1)} x {self.pipeline.size // count} samples = "
            f"{self.pipeline.size} in a step, {self.steps_per_epoch} steps in an epoch; {rate}"
        )
