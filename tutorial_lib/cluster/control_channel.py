"""The notebook's side of the control channel: ask and tell ranks while they compute or wait."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tutorial_lib.cluster.control import MESSAGE

ANSWER_S = 1.0  # a rank that has not answered by then is stopped, or holds Python's lock
POLL_S = 0.005


@dataclass(frozen=True)
class Engine:
    """Where a rank is reached.

    Attributes:
        rank: In MPI.COMM_WORLD.
        engine_id: ipyparallel's number for it.
        uuid: ipyparallel's name for it.
    """

    rank: int
    engine_id: int
    uuid: str


@dataclass(frozen=True)
class ControlChannel:
    """Reaches the thread of each engine that handles control messages.

    Attributes:
        client: ipyparallel's.
        engines: By rank.
    """

    client: Any
    engines: Mapping[int, Engine]

    def ask(
        self, what: str, ranks: Iterable[int] | None = None, timeout_s: float = ANSWER_S
    ) -> dict[int, dict[str, Any]]:
        """Ask ranks for something, whatever their main threads do.

        Args:
            what: "ping" or "where"; see ``control.answer``.
            ranks: Whom; None for all.
            timeout_s: How long to wait for answers, in seconds.

        Returns:
            The answers by rank; a rank that did not answer in time has none.
        """
        chosen = list(self.engines if ranks is None else ranks)
        futures = {rank: self._send(rank, f"{MESSAGE}_request", what=what) for rank in chosen}
        deadline = time.monotonic() + timeout_s
        while not all(f.done() for f in futures.values()) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        return {rank: f.result()["content"] for rank, f in futures.items() if f.done()}

    def cancel(self, ranks: Iterable[int], reason: str, is_timeout: bool = False) -> None:
        """End what ranks wait for, with an error.

        Args:
            ranks: Whose waits.
            reason: For the error.
            is_timeout: Whether it is a CollectiveTimeoutError.
        """
        for rank in ranks:
            self._send(
                rank, f"{MESSAGE}_request", what="cancel", reason=reason, is_timeout=is_timeout
            )

    def signal(self, ranks: Iterable[int], number: int) -> None:
        """Send a signal to ranks' processes; each engine's helper passes it on.

        Args:
            ranks: Which.
            number: The signal.
        """
        for rank in ranks:
            self._send(rank, "signal_request", sig=int(number))

    def abort(self, rank: int, message_id: str) -> None:
        """Take back work that a rank has not begun.

        Args:
            rank: Which.
            message_id: ipyparallel's name for the work.
        """
        self._send(rank, "abort_request", msg_ids=[message_id])

    def _send(self, rank: int, message: str, **content: object) -> Any:
        return self.client._send(
            self.client._control_stream,
            message,
            content=content,
            ident=self.engines[rank].uuid.encode(),
        )
