"""How long this rank waits for the others: each wait in a collective, told to who listens."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tutorial_lib.distributed.rendezvous import MPI_BACKEND


class Waited(NamedTuple):
    """One wait for an operation between ranks; times by ``time.perf_counter``.

    Attributes:
        ranks: The members of its group.
        sequence: Its number among the group's collectives, equal on all ranks; None for send and
            recv.
        operation: torch's name for it.
        nbytes: Of its tensors.
        begun_s: When this rank began it.
        waiting_s: When it began to wait for its end.
        ended_s: When that had come.
    """

    ranks: tuple[int, ...]
    sequence: int | None
    operation: str
    nbytes: int
    begun_s: float
    waiting_s: float
    ended_s: float


Listener = Callable[[Waited], None]

listeners: list[Listener] = []


def is_known_of(backend: str | None) -> bool:
    """Whether waits are told of in a session on this backend: on ours only."""
    return backend == MPI_BACKEND


def tell(waited: Waited) -> None:
    """Tell all listeners of a wait that has ended, well or not."""
    for listener in listeners:
        listener(waited)


class WaitingTime:
    """Adds up how long this rank waits, in whatever thread.

    Attributes:
        seconds: So far.
    """

    def __init__(self) -> None:
        self.seconds = 0.0

    def start(self) -> None:
        """Listen from now on."""
        listeners.append(self._add)

    def stop(self) -> None:
        """Listen no more."""
        listeners.remove(self._add)

    def _add(self, waited: Waited) -> None:
        self.seconds += waited.ended_s - waited.waiting_s
