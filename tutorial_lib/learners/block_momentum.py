"""Ranks that train for themselves and meet after every block of samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import torch
from torch import Tensor

from tutorial_lib.learners.distributed_learner import DistributedLearner
from tutorial_lib.learners.learner import Learner


class Action(IntEnum):
    """What a rank wants from a meeting, and what the ranks do then."""

    WAIT = 0
    AGGREGATE = 1
    PAUSE = 2
    SHUTDOWN = 3


class BlockMomentumLearner(DistributedLearner):
    """A local learner whose parameters are mixed with the other ranks' after every block.

    Between the meetings ranks exchange nothing. At a meeting, the sum of how far each came
    is smoothed by a momentum of its own and applied to where all began. With ``W`` ranks, a block
    of ``block_size`` samples is ``block_size // W`` on each.

    A rank that runs out of data says so by an update from 0 samples, and keeps joining meetings
    until all ranks are out of data.

    CNTK reckons the momentum of a block from each rank's own samples, so that ranks with unequal
    parts drift apart; here it is reckoned from their mean, and all ranks stay equal.

    Args:
        learner: The local rule.
        block_size: Samples of all ranks between meetings.
        block_momentum_as_time_constant: In samples of all ranks; ``None``:
            -block_size / ln(1 - 1 / W).
        use_nestrov_momentum: Whether to look ahead by the momentum, in CNTK's spelling.
        reset_sgd_momentum_after_aggregation: Whether the local rule forgets its gradients then.
        block_learning_rate: Scales how far a block moves the parameters.
        distributed_after: See ``DistributedLearner``; this minibatch included.

    Raises:
        ValueError: Fewer samples in a block than ranks: make it larger.

    **Source:** CNTK's ``BlockMomentumDistributedLearner``; Chen and Huo, ICASSP 2016.
    """

    sums_gradients = False

    def __init__(
        self,
        learner: Learner,
        block_size: int,
        block_momentum_as_time_constant: float | None = None,
        use_nestrov_momentum: bool = True,
        reset_sgd_momentum_after_aggregation: bool = True,
        block_learning_rate: float = 1.0,
        distributed_after: int = 0,
    ) -> None:
        super().__init__(learner, distributed_after)
        self.block_size = block_size
        self.use_nestrov_momentum = use_nestrov_momentum
        self.reset_sgd_momentum_after_aggregation = reset_sgd_momentum_after_aggregation
        self.block_learning_rate = block_learning_rate
        size = self._ranks.world_size
        self.sync_period = block_size // size
        if self.sync_period < 1:
            raise ValueError("Sync period is too small.")
        if block_momentum_as_time_constant is None:
            block_momentum_as_time_constant = (
                -block_size / math.log(1 - 1 / size) if size > 1 else 0.0
            )
        self.block_momentum_as_time_constant = block_momentum_as_time_constant
        self._samples_in_block = 0
        self._mean_in_block = 0.0  # over the ranks, at the last meeting
        self._own_samples = 0
        self._all_samples = 0  # at the last meeting
        self._is_out_of_data = False
        self._start: Tensor | None = None  # the parameters after the last meeting
        self._smoothed: Tensor | None = None  # how far a block moves them

    @property
    def is_synchronizing(self) -> bool:
        """Whether gradients are summed: never."""
        return False

    def reduce(self, parameters: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
        """Leave this rank's gradients as they are."""

    def update(self, num_samples: int, is_sweep_end: bool = False) -> bool:
        """Update from this rank's minibatch, and meet the others when the block is full.

        Args:
            num_samples: Of this rank's minibatch; 0 = this rank has no more data.
            is_sweep_end: Whether the minibatch ended a sweep through the data.

        Returns:
            True, until all ranks are out of data.

        **Distributed:** collective when the block is full, and when the data have run out.
        """
        self._remember_start()
        if num_samples > 0:
            self.learner.update(num_samples, is_sweep_end)
        else:
            self._is_out_of_data = True
        self._own_samples += num_samples
        self.total_number_of_samples_seen += num_samples
        if self.total_number_of_samples_seen < self.distributed_after:
            return not self._is_out_of_data
        if self._is_out_of_data:
            return self._wait_for_others()
        self._samples_in_block += num_samples
        if self._samples_in_block >= self.sync_period:
            self._meet(Action.AGGREGATE)
            self._aggregate()
        return True

    def wait_for_ranks(self) -> None:
        """Join the other ranks' meetings until they all have called this too; mix nothing then.

        **Distributed:** collective.
        """
        self._remember_start()
        while (action := self._meet(Action.PAUSE)) is not Action.PAUSE:
            if action is Action.AGGREGATE:
                self._aggregate()

    def own_state(self) -> dict[str, Any]:
        """Return this rank's local rule's state and count: others' may differ."""
        return {"learner": self.learner.state_dict(), "samples": self._own_samples}

    def load_own_state(self, state: dict[str, Any]) -> None:
        """Go on from ``own_state``'s, after ``load_state_dict``, on the same rank of as many."""
        self.learner.load_state_dict(state["learner"])
        self._own_samples = state["samples"]

    def state_dict(self) -> dict[str, Any]:
        """Meet the other ranks and return the local rule's state and the block's momentum.

        **Distributed:** collective; afterwards the parameters are equal on all ranks.
        """
        self.wait_for_ranks()
        self._aggregate()
        assert self._smoothed is not None
        return {
            "learner": self.learner.state_dict(),
            "total_number_of_samples_seen": self.total_number_of_samples_seen,
            "smoothed": self._smoothed.clone(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from ``state_dict``'s, also with another number of ranks.

        Load the model's parameters too before the next update.

        Raises:
            ValueError: The state is of other parameters: build the learner as it was.
        """
        smoothed = state["smoothed"]
        if smoothed.numel() != sum(p.numel() for p in self.parameters):
            raise ValueError("the state's block momentum is of other parameters than the learner's")
        self.learner.load_state_dict(state["learner"])
        total = self.total_number_of_samples_seen = state["total_number_of_samples_seen"]
        size = self._ranks.world_size
        self._own_samples = total // size + (self._ranks.rank < total % size)
        self._mean_in_block = self._samples_in_block = 0
        self._is_out_of_data = False
        self._start = None
        self._smoothed = smoothed.to(self._device, copy=True)

    def _remember_start(self) -> None:
        if self._start is None:
            self._start = self._flat_parameters()
        if self._smoothed is None:
            self._smoothed = torch.zeros_like(self._start)

    def _wait_for_others(self) -> bool:
        while (action := self._meet(Action.SHUTDOWN)) is Action.AGGREGATE:
            self._aggregate()
        if action is Action.PAUSE:
            return True  # the caller is to come to the same point as the others
        self._aggregate()
        return False

    def _meet(self, wish: Action) -> Action:
        """Tell the ranks what this one wants, count all samples, and return what is to be done."""
        mine = torch.tensor([wish, self._own_samples, self._samples_in_block], dtype=torch.float64)
        wishes, samples, in_block = self._ranks.all_gather(mine.to(self._device)).unbind(1)
        self._all_samples = int(samples.sum())
        self._mean_in_block = float(in_block.mean())
        wanted = {Action(int(other)) for other in wishes}
        if len(wanted) == 1:
            return wanted.pop()
        if Action.AGGREGATE in wanted:
            return Action.AGGREGATE
        return Action.PAUSE if wish is Action.SHUTDOWN else Action.WAIT

    @torch.no_grad()
    def _aggregate(self) -> None:
        """Move all ranks' parameters to the same place, after a meeting. Collective."""
        self.total_number_of_samples_seen = self._all_samples
        if self._mean_in_block == 0:
            return  # nobody went anywhere
        assert self._start is not None
        assert self._smoothed is not None
        constant = self.block_momentum_as_time_constant / self._ranks.world_size
        momentum = math.exp(-self._mean_in_block / constant) if constant else 0.0
        moved = self._start - self._flat_parameters()
        self._ranks.all_reduce(moved)
        self._smoothed.mul_(momentum).add_(moved, alpha=(1 - momentum) * self.block_learning_rate)
        self._start.sub_(self._smoothed)
        if self.use_nestrov_momentum:
            self._start.sub_(self._smoothed, alpha=momentum)
        sizes = [parameter.numel() for parameter in self.parameters]
        for parameter, value in zip(self.parameters, self._start.split(sizes), strict=True):
            parameter.copy_(value.view(parameter.shape))
        self._mean_in_block = self._samples_in_block = 0
        self.bytes_sent += 2 * (self._ranks.world_size - 1) * moved.nbytes // self._ranks.world_size
        if self.reset_sgd_momentum_after_aggregation:
            self.learner.reset_smoothed_gradients()

    def _flat_parameters(self) -> Tensor:
        return torch.cat([parameter.detach().flatten() for parameter in self.parameters])

    @property
    def _device(self) -> torch.device:
        return self.parameters[0].device


def block_momentum_distributed_learner(
    learner: Learner,
    block_size: int,
    block_momentum_as_time_constant: float | None = None,
    use_nestrov_momentum: bool = True,
    reset_sgd_momentum_after_aggregation: bool = True,
    block_learning_rate: float = 1.0,
    distributed_after: int = 0,
) -> BlockMomentumLearner:
    """Make a learner train for itself and meet the other ranks after every block of samples.

    Args:
        learner: The local rule.
        block_size: Samples of all ranks between meetings.
        block_momentum_as_time_constant: In samples of all ranks; ``None``:
            -block_size / ln(1 - 1 / W) with W ranks.
        use_nestrov_momentum: Whether to look ahead by the momentum, in CNTK's spelling.
        reset_sgd_momentum_after_aggregation: Whether the local rule forgets its gradients then.
        block_learning_rate: Scales how far a block moves the parameters.
        distributed_after: Samples after which the ranks begin to meet.

    Returns:
        The distributed learner.

    Raises:
        ValueError: Fewer samples in a block than ranks: make it larger.

    **Source:** CNTK's ``block_momentum_distributed_learner``.
    """
    return BlockMomentumLearner(
        learner,
        block_size,
        block_momentum_as_time_constant,
        use_nestrov_momentum,
        reset_sgd_momentum_after_aggregation,
        block_learning_rate,
        distributed_after,
    )
