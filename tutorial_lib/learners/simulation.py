"""Several ranks as threads of one process: slow, but a lesson or a test needs nothing else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from torch import Tensor

from tutorial_lib.learners import transport

T = TypeVar("T")
TIMEOUT_S = 60


class Table:
    """Where the threads lay down what they send.

    Args:
        world_size: Number of threads.
    """

    def __init__(self, world_size: int) -> None:
        self.places: list[list[Tensor]] = [[] for _ in range(world_size)]
        self.barrier = threading.Barrier(world_size)


class ThreadTransport:
    """One rank among threads.

    Args:
        rank: This thread's.
        table: All ranks'.
    """

    def __init__(self, rank: int, table: Table) -> None:
        self.rank = rank
        self.world_size = len(table.places)
        self._table = table

    def all_reduce(self, values: Tensor) -> None:
        """See ``Transport``. **Distributed:** collective."""
        values.copy_(self.all_gather(values).sum(0))

    def all_gather(self, values: Tensor) -> Tensor:
        """See ``Transport``. **Distributed:** collective."""
        counts = [values.numel()] * self.world_size
        sent = values.flatten().repeat(self.world_size)
        gathered = torch.empty_like(sent)
        self.all_to_all(gathered, sent, counts, counts)
        return gathered.view(self.world_size, *values.shape)

    def all_to_all(
        self, received: Tensor, sent: Tensor, counts: list[int], sent_counts: list[int]
    ) -> None:
        """See ``Transport``. **Distributed:** collective."""
        self._table.places[self.rank] = list(sent.split(sent_counts))
        self._table.barrier.wait(TIMEOUT_S)
        parts = [theirs[self.rank] for theirs in self._table.places]
        torch.cat(parts, out=received)
        self._table.barrier.wait(TIMEOUT_S)


def run_ranks(world_size: int, work: Callable[[int], T]) -> list[T]:
    """Run a function on several ranks at once; learners made in it find these ranks.

    Args:
        world_size: Number of ranks.
        work: Called with each rank.

    Returns:
        What it returned on each rank.

    Raises:
        BaseException: What the first failing rank raised; the others are told to stop.
    """
    table = Table(world_size)
    failures: list[BaseException] = []

    def run(rank: int) -> T:
        with transport.used(ThreadTransport(rank, table)):
            try:
                return work(rank)
            except BaseException as error:
                failures.append(error)
                table.barrier.abort()  # or the others would wait for this one
                raise

    with ThreadPoolExecutor(world_size) as pool:
        futures = [pool.submit(run, rank) for rank in range(world_size)]
    if failures:
        raise failures[0]
    return [future.result() for future in futures]
