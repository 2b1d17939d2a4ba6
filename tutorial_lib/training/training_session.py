"""CNTK's training session: minibatches, checkpoints, cross-validation and a test in one loop."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

from tutorial_lib.learners.distributed_learner import DistributedLearner
from tutorial_lib.training.checkpoint import on_main
from tutorial_lib.training.feed import Feed, Source, Streams, refuse_endless
from tutorial_lib.training.session_config import (
    AT_END,
    Action,
    CheckpointConfig,
    CrossValidationConfig,
    TestConfig,
)
from tutorial_lib.training.trainer import Trainer

__all__ = [
    "CheckpointConfig",
    "CrossValidationConfig",
    "TestConfig",
    "TrainingSession",
    "training_session",
]


class TrainingSession:
    """A whole training, from its beginning, or its checkpoint, to its end.

    For example::

        training_session(
            trainer,
            MinibatchSource(mnist().train),
            mb_size=1024,
            model_inputs_to_streams={"pixels": "features", "labels": "labels"},
            max_samples=600_000,
            checkpoint_config=CheckpointConfig("digits.checkpoint", frequency=60_000),
        ).train()

    Each rank trains on its part of every minibatch once ``distributed_after`` samples are over,
    and on the whole of it before. After a minibatch, what is due is done: a checkpoint, then a
    summary by the trainer's progress writers, then a cross-validation; and each once more at the
    end, for the samples since. It ends with ``max_samples``, with the source, where a
    cross-validation's callback says so, or when an update changes nothing (a rate of 0).

    A training that was interrupted goes on from its last checkpoint: with the source's next
    sample, the same random numbers, and so, on as many ranks, bit for bit as without.

    Args:
        trainer: Of the model.
        mb_source: A ``MinibatchSource``, or another ``Source``.
        mb_size: Samples in a minibatch of all ranks.
        model_inputs_to_streams: For each of the criterion's arguments after the model, by name,
            which of the minibatch's tensors it gets: ``"features"`` or ``"labels"``. They are
            moved to the model's device.
        progress_frequency: Samples from one summary to the next; None: one at the end; 0: none.
        max_samples: Samples to train on, of all ranks together; None for no limit.
        checkpoint_config: See ``CheckpointConfig``.
        cv_config: See ``CrossValidationConfig``.
        test_config: See ``TestConfig``.

    Raises:
        ValueError: A size, limit or frequency out of range; or a source for measuring that never
            ends: give it ``max_sweeps=1``.

    **Distributed:** all ranks must make the same session. With block momentum, samples are
    counted as they are dealt out, where CNTK counts each rank's own between the meetings and so
    trains on more than ``max_samples``.

    **Source:** CNTK's ``training_session``.
    """

    def __init__(
        self,
        trainer: Trainer,
        mb_source: Source,
        mb_size: int,
        model_inputs_to_streams: Streams,
        progress_frequency: int | None = None,
        max_samples: int | None = None,
        checkpoint_config: CheckpointConfig | None = None,
        cv_config: CrossValidationConfig | None = None,
        test_config: TestConfig | None = None,
    ) -> None:
        self.trainer = trainer
        self.checkpoint, self.cv = checkpoint_config, cv_config
        self.max_samples = _limit("max_samples", max_samples)
        self._device = next(trainer.training_network.parameters()).device
        self._learners = [
            learner
            for learner in trainer.parameter_learners
            if isinstance(learner, DistributedLearner)
        ]
        self._partition = (1, 0)
        self._distributed_after = 0
        if self._learners:
            communicator = self._learners[0].communicator()
            self._partition = communicator.num_workers(), communicator.rank()
            self._distributed_after = self._learners[0].distributed_after
        self._is_lockstep = all(learner.sums_gradients for learner in self._learners)
        self._samples = 0
        self._is_stopped = False

        def feed(source: Source, size: int, streams: Streams | None) -> Feed:
            if size < 1:
                raise ValueError(f"a minibatch has 1 sample or more, got {size}")
            return Feed(source, size, streams or model_inputs_to_streams, self._device)

        self._training = feed(mb_source, mb_size, None)
        self._validation = self._test = None
        self._validation_samples = AT_END
        actions: list[tuple[int | None, Callable[[int], None]]] = []
        if checkpoint_config is not None:
            actions.append((checkpoint_config.frequency, self._save))
        actions.append((progress_frequency, self._summarize))
        if cv_config is not None:
            actions.append((cv_config.frequency, self._validate))
            self._validation_samples = _limit("max_samples", cv_config.max_samples)
            if (source := cv_config.minibatch_source) is not None:
                refuse_endless(source, cv_config.max_samples)
                streams = cv_config.model_inputs_to_streams
                self._validation = feed(source, cv_config.minibatch_size, streams)
        if test_config is not None:
            source = test_config.minibatch_source
            refuse_endless(source, None)
            streams = test_config.model_inputs_to_streams
            self._test = feed(source, test_config.minibatch_size, streams)
        self._actions = [
            Action(_limit("frequency", frequency), work)
            for frequency, work in actions
            if frequency != 0
        ]

    def train(self) -> None:
        """Train to the end, from the checkpoint if there is one, and test.

        Raises:
            DataError: The checkpoint is damaged or another training's; move it away.
            OSError: A checkpoint can't be written: make room. Raised on all ranks.

        **Distributed:** collective when a learner is distributed.
        """
        self._is_stopped = False
        self._samples = self.trainer.total_number_of_samples_seen
        self._restore()
        began = self._samples
        for action in self._actions:
            action.start(began)
        while self._train_minibatch():
            self._act()
        self._act(is_end=self._samples != began)
        if self.checkpoint is not None and self.checkpoint.preserve_all:
            self._save_as(self.checkpoint.filename)
        if self._test is not None:
            self._measure(self._test, AT_END)

    def _train_minibatch(self) -> bool:
        """Train on the next minibatch; return whether there may be another."""
        is_alone = self._samples < self._distributed_after
        left = 0 if self._is_stopped else self.max_samples - self._samples
        found = self._training.next(left, (1, 0) if is_alone else self._partition)
        if found is None:
            # Ranks that sum gradients know it all at once; others may still be on their way.
            return not self._is_lockstep and self.trainer.train_minibatch()
        arguments, minibatch = found
        is_end = minibatch.is_sweep_end
        is_updated = self.trainer.train_minibatch(is_sweep_end=is_end, **arguments)
        # Between meetings of block momentum a trainer counts its own samples only, and the ranks
        # would not agree on what is due.
        self._samples += minibatch.global_size
        if self._is_lockstep:
            self._samples = self.trainer.total_number_of_samples_seen
        return is_updated

    def _act(self, is_end: bool = False) -> None:
        for action in self._actions:
            action.act(self._samples, is_end)

    def _save(self, index: int) -> None:
        assert self.checkpoint is not None
        suffix = str(index) if self.checkpoint.preserve_all else ""
        self._save_as(f"{os.fspath(self.checkpoint.filename)}{suffix}")

    def _save_as(self, path: str | os.PathLike[str]) -> None:
        state = {
            "samples": self._samples,
            "source": self._training.source.state_dict(),
            "random": torch.get_rng_state(),
            "random_of_gpu": torch.cuda.get_rng_state(self._device) if self._is_gpu else None,
            "world_size": self._partition[0],
        }
        self.trainer.save_checkpoint(path, state)

    def _restore(self) -> None:
        if self.checkpoint is None or not self.checkpoint.restore:
            return
        config = self.checkpoint
        path = on_main(lambda: _latest(Path(config.filename), config.preserve_all))
        if path is None:
            return
        state = self.trainer.restore_from_checkpoint(path)
        self._samples = state["samples"]
        self._training.source.load_state_dict(state["source"])
        if state["world_size"] == self._partition[0]:
            torch.set_rng_state(state["random"])
            if self._is_gpu and state["random_of_gpu"] is not None:
                torch.cuda.set_rng_state(state["random_of_gpu"], self._device)

    @property
    def _is_gpu(self) -> bool:
        return self._device.type == "cuda"

    def _summarize(self, index: int) -> None:
        self.trainer.summarize_training_progress()

    def _validate(self, index: int) -> None:
        assert self.cv is not None
        error, samples, minibatches = 0.0, 0, 0
        if self._validation is not None:
            source = self._validation.source
            place = source.state_dict()
            error, samples, minibatches = self._measure(self._validation, self._validation_samples)
            source.load_state_dict(place)
        if self.cv.callback is not None:
            goes_on = self.cv.callback(index, error, samples, minibatches)
            self._is_stopped |= self._has_any(goes_on is not None and not goes_on)

    def _measure(self, feed: Feed, max_samples: int) -> tuple[float, int, int]:
        """Return the metric's average over a source, its samples and minibatches. Collective."""
        for learner in self._learners:
            learner.wait_for_ranks()
        total, samples, minibatches = 0.0, 0, 0
        while (found := feed.next(max_samples - samples, self._partition)) is not None:
            metric, count = self.trainer.test_sums(**found[0])
            if count == 0:
                break
            total, samples, minibatches = total + metric, samples + count, minibatches + 1
        self.trainer.summarize_test_progress()
        return total / max(samples, 1), samples, minibatches

    def _has_any(self, wish: bool) -> bool:
        """Whether any rank wishes it. Collective."""
        if self._partition[0] == 1:
            return wish
        for learner in self._learners:
            learner.wait_for_ranks()
        wishes = torch.tensor(float(wish), device=self._device)
        dist.all_reduce(wishes)
        return wishes.item() > 0


training_session = TrainingSession  # the name that CNTK's scripts call


def _limit(name: str, value: int | None) -> int:
    if value is None:
        return AT_END
    if value < 0:
        raise ValueError(f"{name} is {value}; give a number of samples, or None")
    return value


def _latest(path: Path, is_numbered: bool) -> str | None:
    """Return the file to restore: of several numbered ones the one that was written last."""
    files = [path] if path.is_file() else []
    if is_numbered:
        numbered = path.parent.glob(f"{path.name}*")
        files += [file for file in numbered if file.name[len(path.name) :].isdecimal()]
    if not files:
        return None
    return str(max(files, key=lambda file: file.stat().st_mtime_ns))
