"""One piece of work sent to several ranks: what they print and show, and what they answer."""

from __future__ import annotations

import math
import queue
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tutorial_lib.cluster.control_channel import ControlChannel, Engine
from tutorial_lib.cluster.hang_watch import HangWatch
from tutorial_lib.cluster.whereabouts import Whereabouts, read

POLL_S = 0.1
OUTPUT_WAIT_S = 2.0  # for what a rank printed to arrive after its answer
INTERRUPT_WAIT_S = 2.0  # for interrupted ranks to answer
INTERRUPT_AGAIN_S = 0.5  # a rank that was just about to begin has not heard the first one
ERROR_GRACE_S = 0.6  # for the other ranks to finish by themselves once one has failed
WHERE_S = 0.6  # for ranks to say what they do before they are released
LOST_S = 1.0  # for the client to make an answer of an engine that it has lost

OUTPUT_TYPES = frozenset(
    {"stream", "display_data", "execute_result", "update_display_data", "clear_output"}
)


OnOutput = Callable[[int, dict[str, Any]], None]


@dataclass
class RankCall:
    """Work under way on some ranks.

    Attributes:
        control: To the ranks that work.
        on_output: Called, in the waiting thread, with a rank and a message of its output.
        why_dead: Says why the whole cluster is gone, or "" while it lives.
        is_interruptible: Whether the work may be interrupted.
        on_turn: Called in the waiting thread, every so often.
        answers: By rank, as far as they have come: what the functions in ``cell`` make, with
            "status" "ok" or "error", or "dead" when the rank's process has ended.
        left: Where the ranks were that had to be released, just before; None when none had.
    """

    control: ControlChannel
    on_output: OnOutput
    why_dead: Callable[[], str] = lambda: ""
    is_interruptible: bool = True
    on_turn: Callable[[], None] = lambda: None
    answers: dict[int, dict[str, Any]] = field(default_factory=dict)
    left: Whereabouts | None = None
    _events: queue.SimpleQueue[tuple[int, str, Any]] = field(default_factory=queue.SimpleQueue)
    _message_ids: dict[int, str] = field(default_factory=dict)
    _silent: set[int] = field(default_factory=set)  # ranks whose output has ended
    _lost_at: dict[int, float] = field(default_factory=dict)
    _interrupted_at: float = -math.inf

    @property
    def client(self) -> Any:
        """The one of ipyparallel."""
        return self.control.client

    @property
    def engines(self) -> Mapping[int, Engine]:
        """By rank, of those that work."""
        return self.control.engines

    def send(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Have all the ranks start.

        Args:
            function: One that answers, as those in ``cell`` do.
            *arguments: For it.
        """
        for rank, engine in self.engines.items():
            future = self.client.send_apply_request(
                self.client._mux_stream,  # not the bare socket: its loop would miss replies
                function,
                arguments,
                ident=engine.uuid.encode(),
                message_future_hook=lambda future, rank=rank: self._listen(future, rank),
            )
            future.add_done_callback(
                lambda future, rank=rank: self._events.put((rank, "answer", future))
            )

    def _listen(self, future: Any, rank: int) -> None:
        """Have the client's thread pass on what a rank prints, from its first byte on."""
        self._message_ids[rank] = future.msg_id
        metadata = self.client.metadata[future.msg_id]

        def on_message(message: dict[str, Any]) -> None:
            # Else the client would keep all text, and copy it at each message.
            metadata.update(stdout="", stderr="", outputs=[])
            self._events.put((rank, "output", message))

        future.iopub_callbacks.append(on_message)
        future.output.add_done_callback(lambda _: self._events.put((rank, "silence", None)))

    @property
    def pending(self) -> list[int]:
        """The ranks that have got work and not answered."""
        return [rank for rank in self._message_ids if rank not in self.answers]

    def wait(
        self,
        timeout_s: float | None = None,
        watch: HangWatch | None = None,
        work: tuple[Any, ...] = (),
    ) -> dict[int, dict[str, Any]]:
        """Wait for all answers, passing output on as it comes.

        When a rank fails, the others get a moment to finish and are then released, since they may
        wait for it. A KeyboardInterrupt here interrupts all of them.

        Args:
            timeout_s: How long to wait, in seconds; None for as long as the ranks live, since
                nobody knows how long a cell takes.
            watch: Explains a wait that takes long.
            work: To be sent first, if it has not been: what ``send`` takes.

        Returns:
            The answers by rank; a rank has none that did not answer in time, or not even when
            it was interrupted.

        Raises:
            KeyboardInterrupt: The reader interrupted; the ranks have been interrupted too.
        """
        failed_at = released_at = None
        try:
            if work:
                self.send(*work)
            started = time.monotonic()
            while self.pending:
                self._take(POLL_S)
                self.on_turn()
                now = time.monotonic()
                self._bury_lost(now)
                if failed_at is None and self._has_failed():
                    failed_at = now
                if timeout_s is not None and now - started > timeout_s:
                    break
                if failed_at is None:
                    if watch is not None:
                        watch.look(lambda why: self.release(why, is_timeout=True))
                elif now - failed_at > ERROR_GRACE_S:
                    if self.is_interruptible:
                        self.release(f"rank {self._first_failed()} failed")
                    released_at = released_at or now
                    if now - released_at > INTERRUPT_WAIT_S:
                        break
            self._take_rest(OUTPUT_WAIT_S)
        except KeyboardInterrupt:
            if self.is_interruptible:
                self._interrupt_and_wait()
            raise
        return self.answers

    def collect(self) -> None:
        """Take in what has arrived, without waiting."""
        self._take(0)
        self._bury_lost(time.monotonic())

    def release(self, reason: str, is_timeout: bool = False) -> None:
        """End what the ranks that still work wait for; interrupt those that then still work.

        To be called again and again until they have answered.

        Args:
            reason: For the error that their waits end with.
            is_timeout: Whether it is a CollectiveTimeoutError.
        """
        now = time.monotonic()
        if self.left is None:
            self.left = read(self.control.ask("where", self.pending, WHERE_S), self.pending)
            self.control.cancel(self.pending, reason, is_timeout)
            self._interrupted_at = time.monotonic()  # let them leave their waits first
        elif now - self._interrupted_at > INTERRUPT_AGAIN_S:
            self.control.signal(self.pending, signal.SIGINT)
            self._interrupted_at = now

    def abandon(self) -> None:
        """Take back work that ranks have not begun."""
        for rank in self.pending:
            self.control.abort(rank, self._message_ids[rank])

    def _interrupt_and_wait(self) -> None:
        """Interrupt the ranks until they have answered; gloo's waits must be cancelled too."""
        self.control.signal(self.pending, signal.SIGINT)
        self._interrupted_at = time.monotonic()
        deadline = time.monotonic() + INTERRUPT_WAIT_S
        while self.pending and time.monotonic() < deadline:
            self._take(POLL_S)
            self._bury_lost(time.monotonic())
            if time.monotonic() - self._interrupted_at > INTERRUPT_AGAIN_S:
                self.control.cancel(self.pending, "it was interrupted")
                self.control.signal(self.pending, signal.SIGINT)
                self._interrupted_at = time.monotonic()
        self._take_rest(2 * POLL_S)

    def _has_failed(self) -> bool:
        return any(answer["status"] != "ok" for answer in self.answers.values())

    def _first_failed(self) -> int:
        failed = {r: a["time"] for r, a in self.answers.items() if a["status"] != "ok"}
        return min(failed, key=failed.__getitem__)

    def _bury_lost(self, now: float) -> None:
        """Answer for ranks that can't any more."""
        if reason := self.why_dead():
            for rank in self.pending:
                self.answers[rank] = {**_death(reason), "is_cluster": True}
            return
        known = set(self.client._engines.values())
        for rank in self.pending:
            if self.engines[rank].uuid in known:
                continue
            if now - self._lost_at.setdefault(rank, now) > LOST_S:
                self.answers[rank] = _death("its process has ended")

    def _take(self, seconds: float) -> None:
        """Take in what has arrived; when that is nothing, wait some seconds for something."""
        try:
            event = self._events.get(timeout=seconds) if seconds else self._events.get_nowait()
            while True:
                self._handle(*event)
                event = self._events.get_nowait()
        except queue.Empty:
            return

    def _take_rest(self, seconds: float) -> None:
        """Take in the output of ranks that have answered, until they say that it has ended."""
        self._take(0)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and any(
            answer["status"] != "dead" and rank not in self._silent
            for rank, answer in self.answers.items()
        ):
            self._take(min(POLL_S, seconds))

    def _handle(self, rank: int, kind: str, payload: Any) -> None:
        if kind == "silence":
            self._silent.add(rank)
        elif kind == "answer":
            result = payload.result()
            is_answer = isinstance(result, dict) and "status" in result
            # The first stays: a rank can die after its answer, or answer after being buried.
            self.answers.setdefault(rank, result if is_answer else _no_answer(result))
        elif payload["msg_type"] in OUTPUT_TYPES:
            self.on_output(rank, payload)


def ignore(rank: int, message: dict[str, Any]) -> None:
    """Let output of a rank go.

    Args:
        rank: Whose it is.
        message: As its engine sent it.
    """


def _no_answer(error: Any) -> dict[str, Any]:
    """An answer in place of one that the engine could not give."""
    name = getattr(error, "ename", type(error).__name__)
    if name == "EngineError":
        return _death("its process has ended")
    text = getattr(error, "traceback", None) or f"{name}: {error}"
    return {
        **_death(str(getattr(error, "evalue", error))),
        "status": "error",
        "name": name,
        "traceback": text if isinstance(text, list) else [str(text)],
        "is_interrupt": name == "KeyboardInterrupt",
    }


def _death(reason: str) -> dict[str, Any]:
    return {
        "status": "dead",
        "time": time.time(),
        "name": "DeadRankError",
        "message": reason,
        "line": None,
        "traceback": [],
        "is_interrupt": False,
    }
