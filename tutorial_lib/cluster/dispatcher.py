"""Hands work to the ranks of one connection, and knows which of them can take it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tutorial_lib.cluster import readiness
from tutorial_lib.cluster.backlog import Backlog
from tutorial_lib.cluster.connection import Connection
from tutorial_lib.cluster.control_channel import ControlChannel
from tutorial_lib.cluster.errors import AGAIN, BusyRankError, DeadRankError
from tutorial_lib.cluster.hang_watch import HangWatch
from tutorial_lib.cluster.live_line import LiveLine
from tutorial_lib.cluster.rank_call import OnOutput, RankCall, ignore
from tutorial_lib.cluster.rank_table import State
from tutorial_lib.cluster.relay import Relay
from tutorial_lib.cluster.values import decode
from tutorial_lib.cluster.verdict import fates, raise_root_cause

HANG_LIMIT_S = 30.0
TIMEOUT_S = 600.0
SETTLE_S = 6.0


@dataclass(frozen=True)
class Options:
    """How ranks behave when something goes wrong.

    Attributes:
        process_group: Whether the ranks open their distributed session as their first work.
        hang_limit_s: How long a rank may wait in a collective before the cell says who waits for
            whom, in seconds.
        timeout_s: How long it may wait until that is an error, in seconds.
        checks_calls: Whether the ranks compare what they call before they believe its result;
            that costs speed, so turn it off to measure (see docs/faults.md).
    """

    process_group: bool = True
    hang_limit_s: float = HANG_LIMIT_S
    timeout_s: float = TIMEOUT_S
    checks_calls: bool = True


DEFAULT = Options()


class Dispatcher:
    """The ranks of one connection at work.

    Args:
        connection: To ranks that have just come up.
        options: For when something goes wrong.

    Attributes:
        control: Reaches the ranks while they work.
        information: What each rank said of itself when it joined.
        is_open: Whether the connection has not been closed.
    """

    def __init__(self, connection: Connection, options: Options) -> None:
        self.control = ControlChannel(connection.client, connection.engines)
        self.information = connection.information
        self.options = options
        self.is_open = True
        self._connection = connection
        self._backlog = Backlog()
        self._set_up: RankCall | None = None
        self._may_be_out_of_step = False
        if self.options.process_group:
            # Sent and not waited for: the ranks import torch while the reader reads on.
            self._set_up = self._call(list(self.control.engines))
            self._set_up.is_interruptible = False
            how = self.options.timeout_s, self.options.checks_calls
            self._set_up.send(readiness.open_session, *how)

    def run(
        self,
        ranks: Iterable[int] | None,
        function: Callable[..., Any],
        *arguments: Any,
        relay: Relay | None = None,
    ) -> dict[int, Any]:
        """Have ranks do some work, and wait for it.

        Args:
            ranks: Which ones; None for all.
            function: One that answers, as those in ``cell`` do.
            *arguments: For it.
            relay: Takes what they print; None for one as the ranks need it.

        Returns:
            The values in the answers, by rank.

        Raises:
            CellError: It failed on a rank.
            DeadRankError: A rank's process has ended.
            BusyRankError: A rank is stuck in earlier work.
            KeyboardInterrupt: Interrupted here; the ranks have been interrupted too.
        """
        chosen = self.choose(ranks)
        self._finish_set_up()
        self._get_in_step()
        relay = relay or Relay(chosen)
        call = self._call(chosen, relay.take)
        call.on_turn = relay.tick
        watch = HangWatch(self.control, self.options.hang_limit_s, self.options.timeout_s)
        try:
            self._wait(call, function, *arguments, watch=watch)
        finally:
            watch.end()
            relay.finish()
        return {rank: decode(call.answers[rank]) for rank in chosen}

    def ask(
        self, timeout_s: float, function: Callable[..., Any], *arguments: Any
    ) -> dict[int, dict[str, Any]]:
        """Have all ranks do some work within a time, and take whatever comes of it.

        Args:
            timeout_s: How long they may take, in seconds.
            function: One that answers, as those in ``cell`` do.
            *arguments: For it.

        Returns:
            The answers by rank, also of ranks that failed; none of a rank that did not answer.

        Raises:
            DeadRankError: A rank had ended before.
            BusyRankError: A rank was stuck before.
            KeyboardInterrupt: Interrupted here; the ranks have been interrupted too.
        """
        chosen = self.choose(None)
        self._finish_set_up()
        self._get_in_step()
        call = self._call(chosen)
        try:
            return call.wait(timeout_s, work=(function, *arguments))
        finally:
            self._backlog.add(call)

    def _call(self, chosen: list[int], on_output: OnOutput = ignore) -> RankCall:
        engines = {rank: self.control.engines[rank] for rank in chosen}
        control = ControlChannel(self.control.client, engines)
        return RankCall(control, on_output, self._connection.why_dead)

    def _wait(self, call: RankCall, *work: Any, watch: HangWatch | None = None) -> None:
        """Wait for a call, which is sent first if there is work for it, and raise its error."""
        try:
            call.wait(watch=watch, work=work)
        except KeyboardInterrupt as interrupt:
            self._may_be_out_of_step = True
            # The reader need not see the way of the interrupt through this library.
            shown = ["KeyboardInterrupt", *fates(call)]
            interrupt._render_traceback_ = lambda: shown  # type: ignore[attr-defined]
            raise
        finally:
            self._backlog.add(call)
        self._may_be_out_of_step |= any(a["status"] != "ok" for a in call.answers.values())
        raise_root_cause(call, self._connection.first_death, self._called)

    def _called(self, rank: int) -> str:
        """A rank, with its host when there are several."""
        hosts = {info.host for info in self.information.values()}
        return f"rank {rank} on {self.information[rank].host}" if len(hosts) > 1 else f"rank {rank}"

    def _finish_set_up(self) -> None:
        """Wait for the process group, once, before the first work that can need it."""
        if self._set_up is not None:
            self._set_up.wait()  # when this is interrupted, the next work waits again
            call, self._set_up = self._set_up, None
            self._wait(call)
            if note := decode(call.answers[0]):
                LiveLine().end(f"Note: {note}.")

    def _get_in_step(self) -> None:
        """After a failure, start over: some ranks may have begun a collective, or a step."""
        if not self._may_be_out_of_step or self._backlog.stuck() or self._dead():
            return
        self._may_be_out_of_step = False
        everyone = list(self.control.engines)
        asking = self._call(everyone)
        self._wait(asking, readiness.has_groups)
        if all(decode(asking.answers[rank]) for rank in everyone):
            renewing = self._call(everyone)
            self._wait(renewing, readiness.renew_groups)
            if models := decode(renewing.answers[0]):
                LiveLine().end(
                    "After the failure, rank 0's weights were copied to all ranks: "
                    f"{', '.join(models)}. What else a rank holds, such as an optimizer's state, "
                    "stayed as it was."
                )

    def choose(self, ranks: Iterable[int] | None) -> list[int]:
        """The wanted ranks in order, all of them alive and free.

        Args:
            ranks: Which ones; None for all.

        Raises:
            ValueError: There is no such rank.
            DeadRankError: One has ended.
            BusyRankError: One is stuck.
        """
        chosen = sorted(self.control.engines) if ranks is None else sorted(set(ranks))
        if not chosen:
            raise ValueError("no rank named")
        if wrong := [rank for rank in chosen if rank not in self.control.engines]:
            raise ValueError(
                f"no rank {wrong[0]}: there are ranks 0 to {len(self.control.engines) - 1}"
            )
        if not self.is_open or self._connection.why_dead() or set(chosen) & set(self._dead()):
            raise DeadRankError(f"{self.problem()}: {AGAIN}")
        # A data loader's processes, for one, take seconds to end after an interrupt.
        if self._backlog.settle(chosen, SETTLE_S):
            raise BusyRankError(f"{self.problem()}: {AGAIN}")
        return chosen

    def _dead(self) -> list[int]:
        known = set(self.control.client._engines.values())
        return [rank for rank, engine in self.control.engines.items() if engine.uuid not in known]

    def states(self) -> dict[int, State]:
        """What each rank is up to, as far as is known without asking it."""
        states: dict[int, State] = dict.fromkeys(self.control.engines, "ready")
        if self._set_up is not None:
            self._set_up.collect()
            states.update(dict.fromkeys(self._set_up.pending, "importing torch"))
        states.update(dict.fromkeys(self._backlog.stuck(), "stuck"))
        is_gone = not self.is_open or bool(self._connection.why_dead())
        states.update(dict.fromkeys(self.control.engines if is_gone else self._dead(), "dead"))
        return states

    def problem(self) -> str:
        """Why the ranks can't take work, or "" when they can."""
        if not self.is_open:
            return "the cluster has been stopped"
        if reason := self._connection.why_dead():
            return reason
        if dead := self._dead():
            return f"{self._called(dead[0])} has died"
        if stuck := self._backlog.stuck():
            return f"rank {stuck[0]} is stuck in an earlier cell and can't be interrupted"
        return ""

    def close(self) -> None:
        """End the connection, and the ranks if they are ours; again does no harm."""
        if self.is_open:
            self.is_open = False
            self._connection.close()
