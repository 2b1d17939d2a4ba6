"""Minibatches made ahead, in a thread, while the current one trains."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any, Generic, Protocol, TypeVar

import torch

from tutorial_lib.data.minibatch_source import Minibatch

Item = TypeVar("Item")
State = TypeVar("State")


class Prefetcher(Generic[Item, State]):
    """Hands out items that one thread makes ahead, in order, and knows the state after each.

    What is made ahead is never in the way: the state is that after the item handed out last, and
    after anything that goes wrong (an error in making, an interrupt while waiting) what was made
    ahead is forgotten and making goes on from there, so that nothing is lost and nothing comes
    twice.

    Args:
        count: items to make ahead; 0 makes each when it is asked for.
        state: before the first item.

    The thread ends with ``rewind``, and when nobody holds the prefetcher any more.
    """

    def __init__(self, count: int, state: State) -> None:
        self.count = count
        self.state = state
        self._worker: ThreadPoolExecutor | None = None
        self._ahead: deque[Future[tuple[Item, State]]] = deque()
        self._generation = 0  # of what is ahead
        self._making = threading.Lock()
        self._is_astray = False  # the maker may not stand at ``state`` plus what is ahead

    def next(
        self, make: Callable[[], tuple[Item, State]], restore: Callable[[State], object]
    ) -> Item:
        """Return the next item.

        Args:
            make: makes the next one: returns it and the state after it. The thread calls it.
            restore: takes the maker to a state.

        Raises:
            Exception: what ``make`` raised, here and not in the thread.
        """
        if self._is_astray:
            self.rewind(restore)
        self._is_astray = True
        if self.count == 0:
            item, self.state = make()
        else:
            self._fill(make)
            # It stays in its place until it is here: an interrupt would lose it.
            item, self.state = self._ahead[0].result()
            self._ahead.popleft()
            self._fill(make)
        self._is_astray = False
        return item

    def rewind(self, restore: Callable[[State], object]) -> None:
        """End the thread, forget what is ahead, and take the maker back to ``state``.

        Args:
            restore: as for ``next``.
        """
        self._is_astray = True
        self._generation += 1
        self._ahead.clear()
        with self._making:  # to join the thread is not enough: an interrupt ends that for good
            restore(self.state)
        if self._worker is not None:
            self._worker.shutdown()
            self._worker = None
        self._is_astray = False

    def _fill(self, make: Callable[[], tuple[Item, State]]) -> None:
        if self._worker is None:
            # One thread, so that items are made in order; on one core, so as not to be in the way.
            self._worker = ThreadPoolExecutor(1, "prefetch", torch.set_num_threads, (1,))
        while len(self._ahead) < self.count:
            self._ahead.append(self._worker.submit(self._make, make, self._generation))

    def _make(self, make: Callable[[], tuple[Item, State]], generation: int) -> tuple[Item, State]:
        with self._making:
            if generation != self._generation:
                raise CancelledError  # it was forgotten before it was begun
            return make()


class Source(Protocol):
    """What minibatches can be made ahead of: it can be taken back to where it stood."""

    def state_dict(self) -> Any:
        """Where it stands."""

    def load_state_dict(self, state: Any) -> None:
        """Go on there."""


class PrefetchedSource:
    """A source of minibatches or of noise whose next minibatches are made in a thread.

    It pays where making a minibatch takes a part of the step and a core is free for it: data that
    does not fit into memory, slow storage, long rows. Where every core computes already, it can
    only shift work.

    Args:
        source: a ``MinibatchSource``, ``CntkReader`` or ``NoiseSource``, or another with their
            methods. It belongs to this object from now on: don't draw from it directly.
        count: minibatches to make ahead.

    Raises:
        ValueError: a count of less than 1; use the source itself.

    **Distributed:** not collective, as the source.
    """

    def __init__(self, source: Source, count: int = 2) -> None:
        if count < 1:
            raise ValueError(f"count is 1 or more, got {count}; without any, use the source itself")
        self.source: Any = source
        self._prefetcher: Prefetcher[Any, Any] = Prefetcher(count, source.state_dict())
        self._asked: tuple[str, tuple[int, int, int]] | None = None

    def __len__(self) -> int:
        """Return the number of samples in a sweep, where the source has one."""
        return len(self.source)

    def next_minibatch(
        self, size: int, num_data_partitions: int = 1, partition_index: int = 0
    ) -> Minibatch:
        """Return what the source's ``next_minibatch`` would, with its arguments and errors.

        Those ahead were made for the arguments of before; with others they are made anew.
        """
        part: Minibatch = self._next("next_minibatch", (size, num_data_partitions, partition_index))
        return part

    def next(
        self, size: int, num_data_partitions: int = 1, partition_index: int = 0
    ) -> torch.Tensor:
        """Return what the ``next`` of a source of noise would, as ``next_minibatch`` does."""
        rows: torch.Tensor = self._next("next", (size, num_data_partitions, partition_index))
        return rows

    def _next(self, method: str, arguments: tuple[int, int, int]) -> Any:
        if self._asked != (method, arguments):
            self.close()
            self._asked = method, arguments
        draw, source = getattr(self.source, method), self.source

        def make() -> tuple[Any, Any]:
            return draw(*arguments), source.state_dict()

        return self._prefetcher.next(make, source.load_state_dict)

    def state_dict(self) -> Any:
        """Return where the source stood after what was handed out, not what is made ahead."""
        return self._prefetcher.state

    def load_state_dict(self, state: Any) -> None:
        """Go on where ``state`` was taken, from the source itself or from this object.

        Raises:
            ValueError: the source's own; then all is as it was.
        """
        self.close()
        self.source.load_state_dict(state)
        self._prefetcher.state = self.source.state_dict()

    def close(self) -> None:
        """End the thread. The source stands after what was handed out, and can be used again."""
        self._prefetcher.rewind(self.source.load_state_dict)
