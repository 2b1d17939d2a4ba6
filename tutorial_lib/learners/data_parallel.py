"""Learners whose gradient is the sum over all ranks."""

# No postponed annotations here: torch wants the hook's to be the types themselves.
from typing import Any

import torch
import torch.distributed as dist

from tutorial_lib.distributed import session
from tutorial_lib.distributed.data_parallel import sum_gradients
from tutorial_lib.learners.learner import Learner


class DistributedLearner:
    """A local learner that acts on gradients summed over the ranks.

    Args:
        learner: The local rule.

    **Source:** CNTK's ``DataParallelDistributedLearner``.
    """

    def __init__(self, learner: Learner) -> None:
        self.learner = learner

    @property
    def parameters(self) -> list[torch.Tensor]:
        """The parameters that are learned."""
        return self.learner.parameters

    @property
    def is_distributed(self) -> bool:
        """Whether there are other ranks to sum with."""
        ranks = session.current()
        return ranks is not None and ranks.world_size > 1

    def comm_hook(
        self, state: object, bucket: dist.GradBucket
    ) -> torch.futures.Future[torch.Tensor]:
        """Sum a bucket of gradients over the ranks. **Distributed:** collective."""
        return sum_gradients(state, bucket)

    def update(self, num_samples: int) -> bool:
        """Apply the local rule to the summed gradients.

        Args:
            num_samples: Samples of all ranks together that the gradients cover.

        Returns:
            Whether anything changed.
        """
        return self.learner.update(num_samples)

    def state_dict(self) -> dict[str, Any]:
        """The local learner's state: equal on all ranks."""
        return self.learner.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from ``state_dict``'s."""
        self.learner.load_state_dict(state)


def data_parallel_distributed_learner(learner: Learner) -> DistributedLearner:
    """Make a learner act on gradients summed over the ranks.

    Args:
        learner: The local rule.

    Returns:
        The distributed learner; in a session of one rank it acts like the local one.

    **Source:** CNTK's ``data_parallel_distributed_learner``.
    """
    return DistributedLearner(learner)
