"""What distributed learners ask of whatever connects the ranks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor


class Transport(Protocol):
    """The ranks that learn together."""

    rank: int
    world_size: int

    def all_reduce(self, values: Tensor) -> None:
        """Replace a tensor by its sum over the ranks. **Distributed:** collective."""

    def all_gather(self, values: Tensor) -> Tensor:
        """Return every rank's tensor, (ranks, *shape). **Distributed:** collective."""

    def all_to_all(
        self, received: Tensor, sent: Tensor, counts: list[int], sent_counts: list[int]
    ) -> None:
        """Send each rank its part of a vector.

        Args:
            received: Takes what rank 0, 1, ... sent, one after another.
            sent: The parts for rank 0, 1, ... one after another.
            counts: Elements from each rank.
            sent_counts: Elements for each rank.

        **Distributed:** collective.
        """


class Alone:
    """One rank, which has nobody to talk to."""

    rank = 0
    world_size = 1

    def all_reduce(self, values: Tensor) -> None:
        """See ``Transport``."""

    def all_gather(self, values: Tensor) -> Tensor:
        """See ``Transport``."""
        return values.unsqueeze(0)

    def all_to_all(
        self, received: Tensor, sent: Tensor, counts: list[int], sent_counts: list[int]
    ) -> None:
        """See ``Transport``."""
        received.copy_(sent)


class ProcessGroupTransport:
    """The ranks of torch's default process group."""

    def __init__(self) -> None:
        self.rank = dist.get_rank()
        self.world_size = dist.get_world_size()

    def all_reduce(self, values: Tensor) -> None:
        """See ``Transport``. **Distributed:** collective."""
        dist.all_reduce(values)

    def all_gather(self, values: Tensor) -> Tensor:
        """See ``Transport``. **Distributed:** collective."""
        gathered = [torch.empty_like(values) for _ in range(self.world_size)]
        dist.all_gather(gathered, values)
        return torch.stack(gathered)

    def all_to_all(
        self, received: Tensor, sent: Tensor, counts: list[int], sent_counts: list[int]
    ) -> None:
        """See ``Transport``. **Distributed:** collective."""
        dist.all_to_all_single(received, sent, counts, sent_counts)


def current_transport() -> Transport:
    """Return the ranks of the open session, or this one alone."""
    simulated: Transport | None = getattr(_simulated, "transport", None)
    if simulated is not None:
        return simulated
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        return ProcessGroupTransport()
    return Alone()


@contextmanager
def used(transport: Transport) -> Iterator[None]:
    """Let this thread's learners find the given ranks instead of the session's."""
    _simulated.transport = transport
    try:
        yield
    finally:
        _simulated.transport = None


_simulated = threading.local()
