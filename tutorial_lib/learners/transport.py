"""How ranks exchange packed columns."""

from __future__ import annotations

from typing import Protocol

import torch.distributed as dist
from torch import Tensor


class Transport(Protocol):
    """What the aggregation needs from whatever carries its words."""

    rank: int
    world_size: int

    def all_to_all(self, sent: Tensor, sent_counts: list[int], counts: list[int]) -> Tensor:
        """Send each rank its part of a vector.

        Args:
            sent: The parts for rank 0, 1, ... one after another.
            sent_counts: Elements for each rank.
            counts: Elements from each rank.

        Returns:
            What the ranks sent, in their order, as one vector.

        **Distributed:** collective.
        """


class ProcessGroupTransport:
    """The ranks of a ``torch.distributed`` process group.

    Args:
        group: ``None`` = the default one.
    """

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        self.rank = dist.get_rank(group)
        self.world_size = dist.get_world_size(group)
        self._group = group

    def all_to_all(self, sent: Tensor, sent_counts: list[int], counts: list[int]) -> Tensor:
        """See ``Transport.all_to_all``. **Distributed:** collective."""
        received = sent.new_empty(sum(counts))
        dist.all_to_all_single(received, sent, counts, sent_counts, group=self._group)
        return received
