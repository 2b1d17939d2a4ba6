"""What distributed learners have in common, and which of them may train together."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from tutorial_lib.distributed.communicator import Communicator
from tutorial_lib.learners.learner import Learner
from tutorial_lib.learners.transport import Transport, current_transport

Reduced = torch.futures.Future[Tensor]


class DistributedLearner(ABC):
    """A local learner among several ranks.

    Args:
        learner: The local rule.
        distributed_after: Samples after which the ranks begin to work together; until then each
            trains for itself. All ranks must have seen equally many.

    **Source:** CNTK's ``DistributedLearner``.
    """

    sums_gradients = True
    """Whether it ever acts on gradients summed over the ranks, so that its model needs DDP."""

    def __init__(self, learner: Learner, distributed_after: int = 0) -> None:
        if distributed_after < 0:
            raise ValueError(f"distributed_after is {distributed_after}; give 0 samples or more")
        self.learner = learner
        self.distributed_after = distributed_after
        self.total_number_of_samples_seen = 0
        self.bytes_sent = 0
        self.is_metric_aggregator = False

    @property
    def parameters(self) -> list[Tensor]:
        """The parameters that are learned."""
        return self.learner.parameters

    @property
    def is_distributed(self) -> bool:
        """Whether there are other ranks."""
        return self._ranks.world_size > 1

    @property
    @abstractmethod
    def is_synchronizing(self) -> bool:
        """Whether the next minibatch is all ranks': its gradients, loss and count are summed."""

    def communicator(self) -> Communicator:
        """Return the ranks as CNTK's scripts ask for them."""
        return Communicator()

    def set_as_metric_aggregator(self) -> None:
        """Let the trainer report loss and counts as this learner sees them."""
        self.is_metric_aggregator = True

    def learning_rate(self) -> float:
        """Return the local rule's learning rate as its schedule has it now."""
        return self.learner.learning_rate()

    def reset_learning_rate(self, lr: Any) -> None:
        """Replace the learning rate by a schedule that begins now; see ``Learner``."""
        self.learner.reset_learning_rate(lr)

    def comm_hook(self, state: object, bucket: dist.GradBucket) -> Reduced:
        """Do to a bucket of gradients what this learner does; for a model that it learns alone.

        Of parameters that it does not learn, each rank keeps its own gradients.

        **Distributed:** collective when ``is_synchronizing``.
        """
        self.reduce_own(bucket)
        return completed(bucket.buffer())

    def reduce_own(self, bucket: dist.GradBucket) -> None:
        """Reduce those gradients in a bucket whose parameters this learner learns.

        **Distributed:** as ``reduce``.
        """
        learned = {id(parameter) for parameter in self.parameters}
        members = [
            (parameter, gradient)
            for parameter, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True)
            if id(parameter) in learned
        ]
        if members:
            self.reduce(*map(list, zip(*members, strict=True)))

    @property
    def _ranks(self) -> Transport:
        return current_transport()

    @abstractmethod
    def reduce(self, parameters: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
        """Replace gradients by what the local rule shall see.

        Args:
            parameters: Some of this learner's, the same ones on all ranks.
            gradients: Theirs, changed in place.

        **Distributed:** collective when ``is_synchronizing``.
        """

    @abstractmethod
    def update(self, num_samples: int, is_sweep_end: bool = False) -> bool:
        """Update the parameters from a minibatch's gradients.

        Args:
            num_samples: Of all ranks' minibatch when ``is_synchronizing``, else of this rank's; 0
                is legal.
            is_sweep_end: Whether the minibatch ended a sweep through the data.

        Returns:
            Whether the trainer shall go on: see the learner.
        """

    @abstractmethod
    def wait_for_ranks(self) -> None:
        """Let ranks that train apart come to the same point, where all of them called this.

        **Distributed:** collective.
        """

    @abstractmethod
    def own_state(self) -> dict[str, Any]:
        """Return what this rank alone has, beside ``state_dict``; not collective."""

    @abstractmethod
    def load_own_state(self, state: dict[str, Any]) -> None:
        """Go on from ``own_state``'s, after ``load_state_dict``, on the same rank of as many."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return all that ``load_state_dict`` needs, equal on all ranks.

        **Distributed:** collective.
        """

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from ``state_dict``'s, also with another number of ranks."""


def check_learners(learners: Sequence[Learner | DistributedLearner]) -> None:
    """Refuse learners that can't train one model together.

    A sole distributed learner becomes the metric aggregator.

    Args:
        learners: A trainer's.

    Raises:
        ValueError: Distributed and local learners, different ``distributed_after``, or two
            metric aggregators: the message says what to change.
    """
    distributed = [learner for learner in learners if isinstance(learner, DistributedLearner)]
    if not distributed:
        return
    if len(distributed) < len(learners):
        raise ValueError(
            "Cannot use a non-distributed learner for some parameters together with a "
            "distributed learner for other parameters, in a single Trainer."
        )
    if len({learner.distributed_after for learner in distributed}) > 1:
        raise ValueError(
            "All distributed learners need to have the same DistributeAfterSamples limit."
        )
    if len(distributed) == 1:
        distributed[0].set_as_metric_aggregator()
    if sum(learner.is_metric_aggregator for learner in distributed) > 1:
        raise ValueError(
            "Only one of a Trainer's learners may be its metric aggregator, or the loss would be "
            "summed over the ranks more than once: call set_as_metric_aggregator() on one."
        )


def check_parameters(model: nn.Module, learners: Sequence[Learner | DistributedLearner]) -> None:
    """Refuse learners whose parameters aren't the model's, or not each one's own.

    Args:
        model: What they learn.
        learners: A trainer's.

    Raises:
        ValueError: A parameter belongs to two learners or is not the model's.
    """
    names = {id(value): name for name, value in model.named_parameters()}
    learned = [parameter for learner in learners for parameter in learner.parameters]
    foreign = [tuple(parameter.shape) for parameter in learned if id(parameter) not in names]
    if foreign:
        raise ValueError(
            f"Trainer ctor: {len(foreign)} of the learner parameters, of shapes {foreign}, are not "
            "part of the model specified: make the learner from model.parameters()"
        )
    for number, times in Counter(map(id, learned)).items():
        if times > 1:
            raise ValueError(
                f"Parameter {names[number]!r} is covered by {times} different learners: "
                "give each parameter to one"
            )


def metric_aggregator(
    learners: Sequence[Learner | DistributedLearner],
) -> DistributedLearner | None:
    """Return the distributed learner whose view of loss and counts a trainer reports.

    Args:
        learners: A trainer's.

    Returns:
        The learner; ``None`` where all are local.

    Raises:
        ValueError: There are two: call ``set_as_metric_aggregator()`` on one only.
        RuntimeError: There is none among several: call ``set_as_metric_aggregator()`` on one.
    """
    check_learners(learners)
    distributed = [learner for learner in learners if isinstance(learner, DistributedLearner)]
    for learner in distributed:
        if learner.is_metric_aggregator:
            return learner
    if distributed:
        raise RuntimeError(
            "Update failed: Metric aggregation did not happen, none of the learners was marked as "
            "metric aggregator."
        )
    return None


def gradient_hook(
    learners: Sequence[DistributedLearner],
) -> Callable[[object, dist.GradBucket], Reduced]:
    """Return a communication hook for a model whose parameters several learners share out.

    Args:
        learners: A trainer's; parameters of none of them keep their own gradients.

    Returns:
        A hook for ``DistributedDataParallel.register_comm_hook``.
    """
    if len(learners) == 1:
        return learners[0].comm_hook

    def hook(state: object, bucket: dist.GradBucket) -> Reduced:
        # collective: every rank has the same bucket and goes through it in the same order
        for learner in learners:
            learner.reduce_own(bucket)
        return completed(bucket.buffer())

    return hook


def completed(value: Tensor) -> Reduced:
    """Return a future that has the value already."""
    future: Reduced = torch.futures.Future(devices=[value.device] if value.is_cuda else None)
    future.set_result(value)
    return future
