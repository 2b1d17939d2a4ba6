"""When there is something to report, and what: the part that all progress writers share."""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from tutorial_lib.learners.learner import Learner


class Totals(NamedTuple):
    """Running sums over minibatches."""

    samples: int = 0
    updates: int = 0
    loss: float = 0.0
    metric: float = 0.0


@dataclass(frozen=True)
class Span:
    """A stretch of minibatches: the running totals before and after it."""

    start: Totals
    end: Totals

    @property
    def average_loss(self) -> float:
        """Loss per sample within the stretch."""
        return per_sample(self.end.loss - self.start.loss, self.samples)

    @property
    def average_metric(self) -> float:
        """Metric per sample within the stretch."""
        return per_sample(self.end.metric - self.start.metric, self.samples)

    @property
    def samples(self) -> int:
        """Samples within the stretch."""
        return self.end.samples - self.start.samples

    @property
    def updates(self) -> int:
        """Minibatches within the stretch."""
        return self.end.updates - self.start.updates


@dataclass(frozen=True)
class Summary:
    """All minibatches since the last summary, and how many summaries there were, this included."""

    span: Span
    number: int
    elapsed_s: float


class Tally:
    """Totals of a kind of minibatch, and which of them are to be reported.

    Args:
        frequency: Report every so many minibatches; 0: the 1st, 3rd, 7th, 15th, ...; None: none.
        first: Report each of the first so many minibatches too.
    """

    def __init__(self, frequency: int | None, first: int) -> None:
        if frequency is not None and frequency < 0:
            raise ValueError(f"a frequency of {frequency} means nothing; give None for no lines")
        self.frequency = sys.maxsize if frequency is None else frequency
        self.first = first
        self.total_updates = 0
        self.summaries = 0
        self._totals = self._reported = Totals()
        self._started = time.perf_counter()

    def add(self, samples: int, loss: float, metric: float) -> Span | None:
        """Count a minibatch's sums; return the span since the last report when one is due."""
        if samples == 0:
            return None
        self.total_updates += 1
        before = self._totals
        self._totals = Totals(
            before.samples + samples,
            before.updates + 1,
            before.loss + loss,
            before.metric + metric,
        )
        if not self._is_due(self._totals.updates):
            return None
        span = Span(self._reported, self._totals)
        self._reported = self._totals
        return span

    def summarize(self) -> Summary:
        """Return everything since the last summary and start afresh."""
        self.summaries += 1
        elapsed_ms = int((time.perf_counter() - self._started) * 1000)
        summary = Summary(Span(Totals(), self._totals), self.summaries, elapsed_ms / 1000)
        self._totals = self._reported = Totals()
        self._started = time.perf_counter()
        return summary

    def _is_due(self, updates: int) -> bool:
        if self.frequency == 0:
            return (updates + 1) & updates == 0
        return updates % self.frequency == 0 or updates <= self.first


class ProgressWriter(ABC):
    """Counts what a trainer tells it and decides when there is something to write.

    Args:
        freq: Training minibatches between reports; 0: after the 1st, 3rd, 7th, ...; None: none.
        first: Report each of the first so many training minibatches too.
        test_freq: The same for test minibatches.
        test_first: The same for test minibatches.
        distributed_freq: The same for synchronisations of the ranks.
        distributed_first: The same for synchronisations of the ranks.

    Raises:
        ValueError: A negative frequency: give ``None`` for no reports.

    **Source:** CNTK's ``ProgressWriter``.
    """

    def __init__(
        self,
        freq: int | None = None,
        first: int = 0,
        test_freq: int | None = None,
        test_first: int = 0,
        distributed_freq: int | None = None,
        distributed_first: int = 0,
    ) -> None:
        self.training = Tally(freq, first)
        self.testing = Tally(test_freq, test_first)
        self.synchronizing = Tally(distributed_freq, distributed_first)
        self._parameters: WeakKeyDictionary[Learner, dict[str, float]] = WeakKeyDictionary()

    def update(self, samples: int, loss: float, metric: float | None = None) -> None:
        """Count a training minibatch.

        Args:
            samples: In the global minibatch; 0 counts as no update.
            loss: Its sum over the samples.
            metric: Its sum over the samples, if there is a metric.
        """
        span = self.training.add(samples, loss, metric or 0.0)
        if span is not None:
            self.on_training_update(span)

    def summarize(self) -> None:
        """End an epoch: report all since the last summary and start afresh."""
        self.on_training_summary(self.training.summarize())

    def update_test(self, samples: int, metric: float) -> None:
        """Count a test minibatch.

        Args:
            samples: In the global minibatch.
            metric: Its sum over the samples.
        """
        span = self.testing.add(samples, 0.0, metric)
        if span is not None:
            self.on_test_update(span)

    def summarize_test(self) -> None:
        """End a test: report all since the last such summary and start afresh."""
        self.on_test_summary(self.testing.summarize())

    def update_distributed(self, samples: int) -> None:
        """Count a synchronisation of the ranks.

        Call it before ``update`` for the minibatch that synchronised, as CNTK does.

        Args:
            samples: Of all ranks since the last synchronisation.
        """
        span = self.synchronizing.add(samples, 0.0, 0.0)
        if span is not None:
            self.on_distributed_sync(span)

    def log_learning_rate(self, *learners: Any) -> None:
        """Write the rates and momenta that changed since they were last written.

        Call it before the learners update.

        Args:
            *learners: The trainer's; distributed learners say nothing, as in CNTK.
        """
        for learner in learners:
            if not isinstance(learner, Learner):
                continue
            written = self._parameters.setdefault(learner, {})
            for name, value in learner.reported_parameters().items():
                if written.get(name) != value:
                    written[name] = value
                    self.on_parameter(name, value)

    @abstractmethod
    def on_training_update(self, span: Span) -> None:
        """Write what was trained since the last report."""

    @abstractmethod
    def on_training_summary(self, summary: Summary) -> None:
        """Write what was trained since the last summary."""

    @abstractmethod
    def on_test_update(self, span: Span) -> None:
        """Write what was tested since the last report."""

    @abstractmethod
    def on_test_summary(self, summary: Summary) -> None:
        """Write what was tested since the last summary."""

    @abstractmethod
    def on_distributed_sync(self, span: Span) -> None:
        """Write how often the ranks synchronised since the last report."""

    @abstractmethod
    def on_parameter(self, name: str, value: float) -> None:
        """Write a rate or momentum that changed."""


def per_sample(total: float, samples: float) -> float:
    """Return the average, 0 over no samples."""
    return total / samples if samples > 0 else 0.0
