"""One piece of work sent to several ranks: what they print and show, and what they answer."""

from __future__ import annotations

import queue
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tutorial_lib.cluster.errors import DeadRankError

POLL_S = 0.1
OUTPUT_WAIT_S = 2.0  # for what a rank printed to arrive after its answer
INTERRUPT_WAIT_S = 2.0  # for interrupted ranks to answer
ERROR_GRACE_S = 1.0  # for the other ranks to finish by themselves once one has failed

OUTPUT_TYPES = frozenset(
    {"stream", "display_data", "execute_result", "update_display_data", "clear_output"}
)


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


@dataclass
class RankCall:
    """Work under way on some ranks.

    Attributes:
        client: Of the cluster.
        engines: By rank, of those that work.
        on_output: Called, in the waiting thread, with a rank and a message of its output.
        is_alive: Says why the whole cluster is gone, or "" while it lives.
    """

    client: Any
    engines: Mapping[int, Engine]
    on_output: Callable[[int, dict[str, Any]], None]
    is_alive: Callable[[], str] = lambda: ""
    answers: dict[int, dict[str, Any]] = field(default_factory=dict)
    _events: queue.SimpleQueue[tuple[int, str, Any]] = field(default_factory=queue.SimpleQueue)
    _silent: set[int] = field(default_factory=set)  # ranks whose output has ended

    def send(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Have all the ranks start.

        Args:
            function: One of those in ``cell``.
            *arguments: For it.
        """
        for rank, engine in self.engines.items():
            future = self.client.send_apply_request(
                self.client._mux_socket,
                function,
                arguments,
                ident=engine.uuid.encode(),
                message_future_hook=lambda future, rank=rank: self._listen(future, rank),
            )
            future.add_done_callback(
                lambda future, rank=rank: self._events.put((rank, "answer", future))
            )

    def _listen(self, future: Any, rank: int) -> None:
        metadata = self.client.metadata[future.msg_id]

        def on_message(message: dict[str, Any]) -> None:
            # The client would keep all text, and copy it at each message.
            metadata.update(stdout="", stderr="", outputs=[])
            self._events.put((rank, "output", message))

        future.iopub_callbacks.append(on_message)
        future.output.add_done_callback(lambda _: self._events.put((rank, "silence", None)))

    @property
    def pending(self) -> list[int]:
        """The ranks that have not answered."""
        return [rank for rank in self.engines if rank not in self.answers]

    def wait(self, timeout_s: float | None = None) -> dict[int, dict[str, Any]]:
        """Wait for all answers, passing output on as it comes.

        When a rank fails, the others get a moment to finish and are then interrupted, since
        they may wait for it. A KeyboardInterrupt here interrupts all of them.

        Args:
            timeout_s: How long at most, in seconds; None for as long as the ranks live.

        Returns:
            The answers by rank; a rank that did not answer even when interrupted has none.

        Raises:
            KeyboardInterrupt: The reader interrupted; the ranks have been interrupted too.
        """
        started = time.monotonic()
        interrupted_at: float | None = None
        failed_at: float | None = None
        try:
            while self.pending:
                self._take(POLL_S)
                now = time.monotonic()
                if reason := self.is_alive():
                    self._fail_pending(reason)
                    break
                if failed_at is None and self._has_failed():
                    failed_at = now
                is_late = timeout_s is not None and now - started > timeout_s
                is_blocked = failed_at is not None and now - failed_at > ERROR_GRACE_S
                if interrupted_at is None and (is_late or is_blocked):
                    self.interrupt()
                    interrupted_at = now
                if interrupted_at is not None and now - interrupted_at > INTERRUPT_WAIT_S:
                    break
        except KeyboardInterrupt:
            self._interrupt_and_wait()
            raise
        self._take_rest(OUTPUT_WAIT_S)
        return self.answers

    def interrupt(self) -> None:
        """Send SIGINT to the ranks that still work."""
        for rank in self.pending:
            self.client._send(
                self.client._control_stream,
                "signal_request",
                content={"sig": int(signal.SIGINT)},
                ident=self.engines[rank].uuid.encode(),
            )

    def _interrupt_and_wait(self) -> None:
        self.interrupt()
        deadline = time.monotonic() + INTERRUPT_WAIT_S
        while self.pending and time.monotonic() < deadline:
            self._take(POLL_S)
        self._take_rest(0.2)

    def _has_failed(self) -> bool:
        return any(answer["status"] == "error" for answer in self.answers.values())

    def _fail_pending(self, reason: str) -> None:
        for rank in self.pending:
            self.answers[rank] = _death(reason)

    def _take(self, seconds: float) -> None:
        """Take in what arrives within some seconds; return after the first."""
        try:
            event = self._events.get(timeout=seconds)
        except queue.Empty:
            return
        while True:
            self._handle(*event)
            try:
                event = self._events.get_nowait()
            except queue.Empty:
                return

    def _take_rest(self, seconds: float) -> None:
        """Take in the output of ranks that have answered, until they say it has ended."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            talking = [
                rank
                for rank, answer in self.answers.items()
                if rank not in self._silent and answer["status"] != "dead"
            ]
            if not talking:
                return
            self._take(min(POLL_S, seconds))

    def _handle(self, rank: int, kind: str, payload: Any) -> None:
        if kind == "answer":
            result = payload.result()
            self.answers[rank] = result if isinstance(result, dict) else _death_or_error(result)
        elif kind == "silence":
            self._silent.add(rank)
        elif payload["msg_type"] in OUTPUT_TYPES:
            self.on_output(rank, payload)


def _death_or_error(error: Any) -> dict[str, Any]:
    """An answer in place of the one that the engine could not give."""
    if getattr(error, "ename", type(error).__name__) == "EngineError":
        return _death("its process has ended")
    name = getattr(error, "ename", type(error).__name__)
    return {
        "status": "error",
        "name": name,
        "message": str(getattr(error, "evalue", error)),
        "line": None,
        "traceback": [str(getattr(error, "traceback", None) or error)],
        "is_interrupt": name == "KeyboardInterrupt",
        "time": time.time(),
    }


def _death(reason: str) -> dict[str, Any]:
    return {
        "status": "dead",
        "name": DeadRankError.__name__,
        "message": reason,
        "line": None,
        "traceback": [],
        "is_interrupt": False,
        "time": time.time(),
    }
