"""The ranks as a notebook sees them: run on them, give them values, take values from them."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tutorial_lib.cluster import cell, readiness
from tutorial_lib.cluster.connection import Connection
from tutorial_lib.cluster.errors import AGAIN, BusyRankError, CellError, DeadRankError
from tutorial_lib.cluster.rank_call import OnOutput, RankCall, ignore
from tutorial_lib.cluster.rank_table import RankRow, RankTable, State
from tutorial_lib.cluster.relay import Relay
from tutorial_lib.cluster.values import decode
from tutorial_lib.cluster.verdict import fates, raise_root_cause

_open: list[Ranks] = []


class Ranks:
    """The ranks of a running cluster, always in the order of their rank; made by ``Cluster``.

    Args:
        connection: To the cluster.
        process_group: Whether the ranks open their distributed session as their first work.
    """

    def __init__(self, connection: Connection, process_group: bool = True) -> None:
        self.client = connection.client
        self.engines = connection.engines
        self._connection = connection
        self._unfinished: list[RankCall] = []
        self._set_up: RankCall | None = None
        self._may_be_out_of_step = False
        self.is_open = True
        if process_group:
            # Sent and not waited for: the ranks import torch while the reader reads on.
            self._set_up = self._call(list(self.engines))
            self._set_up.is_interruptible = False
            self._set_up.send(readiness.open_session)
        _open.append(self)
        self._activate()

    def __len__(self) -> int:
        return len(self.engines)

    def __repr__(self) -> str:
        state = "" if self.is_open else ", stopped"
        return f"<{count(len(self))}{state}>"

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return len(self)

    @property
    def logs(self) -> dict[int, str]:
        """The file, on its host, with all that a rank has printed; gone when the cluster stops."""
        return {rank: info.log for rank, info in self._connection.information.items()}

    @property
    def view(self) -> Any:
        """A view of ipyparallel on all ranks, in rank order."""
        return self.client.direct_view([engine.engine_id for engine in self.engines.values()])

    def run(
        self,
        code: str | Callable[..., object],
        *arguments: object,
        ranks: Iterable[int] | None = None,
        number: int = 0,
        heading: str = "",
        is_unfolded: bool = False,
    ) -> dict[int, Any]:
        """Run code, or call a function, on the ranks, and show what they print.

        Args:
            code: Source, as in a cell, or a function.
            *arguments: For the function.
            ranks: Which ones; None for all.
            number: For source: the cell's execution count, shown in tracebacks.
            heading: For source: the line above it in its cell, for line numbers to agree. The
                cell is then nothing but this work, and while it runs long, the other ranks have
                a line each above rank 0's output.
            is_unfolded: Whether what the other ranks print is shown in the open.

        Returns:
            By rank, the value of the last expression, or what the function returned. A value
            that can't leave its rank is represented by its text.

        Raises:
            CellError: It failed on a rank; the message names the rank and the cause.
            DeadRankError: A rank's process has ended: start the cluster again.
            BusyRankError: A rank is stuck in an earlier cell: start the cluster again.
            KeyboardInterrupt: Interrupted here; the ranks have been interrupted too.
        """
        if isinstance(code, str):
            chosen = self._choose(ranks)
            relay = Relay(chosen, is_whole_cell=bool(heading), is_unfolded=is_unfolded)
            return self._run(chosen, cell.run_cell, code, number, heading, relay=relay)
        return self._run(ranks, cell.call, code, arguments)

    def push(self, variables: Mapping[str, object], ranks: Iterable[int] | None = None) -> None:
        """Set variables on the ranks.

        Args:
            variables: Their values by name.
            ranks: Which ones; None for all.
        """
        self._run(ranks, cell.push, dict(variables))

    def pull(self, name: str, ranks: Iterable[int] | None = None) -> dict[int, Any]:
        """Get a variable from the ranks.

        Args:
            name: Of the variable, or an expression.
            ranks: Which ones; None for all.

        Returns:
            Its value by rank.
        """
        return self._run(ranks, cell.pull, name)

    def status(self) -> RankTable:
        """Who the ranks are and how they do: host, process, cores, threads, state, MPI."""
        states = self._states()
        threads: dict[int, Any] = {}
        if ready := [rank for rank, state in states.items() if state == "ready"]:
            with contextlib.suppress(CellError, BusyRankError, DeadRankError):
                threads = self._run(ready, cell.call, readiness.threads, (len(self),))
        return RankTable(
            [
                RankRow(info, threads.get(rank, info.threads), states[rank])
                for rank, info in self._connection.information.items()
            ]
        )

    def _states(self) -> dict[int, State]:
        """What each rank is up to, as far as is known without asking it."""
        self._collect()
        states: dict[int, State] = dict.fromkeys(self.engines, "ready")
        if self._set_up is not None:
            self._set_up.collect()
            states.update(dict.fromkeys(self._set_up.pending, "importing torch"))
        states.update(dict.fromkeys(self._stuck(), "stuck"))
        is_gone = not self.is_open or bool(self._connection.why_dead())
        states.update(dict.fromkeys(self.engines if is_gone else self._dead(), "dead"))
        return states

    def problem(self) -> str:
        """Why the ranks can't take work, or "" when they can."""
        if not self.is_open:
            return "the cluster has been stopped"
        if reason := self._connection.why_dead():
            return reason
        if dead := self._dead():
            return f"rank {dead[0]} has died"
        self._collect()
        if stuck := self._stuck():
            return f"rank {stuck[0]} is stuck in an earlier cell and can't be interrupted"
        return ""

    def stop(self) -> None:
        """End the cluster, if it was started here, or leave it; again does no harm."""
        if self.is_open:
            self.is_open = False
            _open.remove(self)
            self._connection.close()
            if _open:
                _open[-1]._activate()

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _activate(self) -> None:
        """Make ``%%ranks`` and ``%%px`` work on these ranks, where there is IPython."""
        ipython = sys.modules.get("IPython")
        shell = ipython.get_ipython() if ipython is not None else None
        if shell is not None:
            from tutorial_lib.cluster.magics import RanksMagics

            shell.register_magics(RanksMagics)
            view = self.view
            view.block = True
            view.activate()

    def _run(
        self,
        ranks: Iterable[int] | None,
        function: Callable[..., Any],
        *arguments: Any,
        relay: Relay | None = None,
    ) -> dict[int, Any]:
        chosen = self._choose(ranks)
        self._finish_set_up()
        self._get_in_step()
        relay = relay or Relay(chosen)
        call = self._call(chosen, relay.take)
        call.on_turn = relay.tick
        try:
            self._wait(call, function, *arguments)
        finally:
            relay.finish()
        return {rank: decode(call.answers[rank]) for rank in chosen}

    def _call(self, chosen: list[int], on_output: OnOutput = ignore) -> RankCall:
        engines = {rank: self.engines[rank] for rank in chosen}
        return RankCall(self.client, engines, on_output, self._connection.why_dead)

    def _wait(self, call: RankCall, *work: Any) -> None:
        """Wait for a call, which is sent first if there is work for it, and raise its error."""
        try:
            if work:
                call.send(*work)
            call.wait()
        except KeyboardInterrupt as interrupt:
            self._may_be_out_of_step = True
            # The reader need not see the way of the interrupt through this library.
            shown = ["KeyboardInterrupt", *fates(call)]
            interrupt._render_traceback_ = lambda: shown  # type: ignore[attr-defined]
            raise
        finally:
            if call.pending:
                call.on_output = ignore
                self._unfinished.append(call)
        self._may_be_out_of_step |= any(a["status"] != "ok" for a in call.answers.values())
        raise_root_cause(call, self._connection.cause_of_death)

    def _finish_set_up(self) -> None:
        """Wait for the process group, once, before the first work that can need it."""
        if self._set_up is not None:
            self._set_up.wait()  # when this is interrupted, the next work waits again
            call, self._set_up = self._set_up, None
            self._wait(call)

    def _get_in_step(self) -> None:
        """After a failure, renew the process group: some ranks may have begun a collective."""
        if not self._may_be_out_of_step or self._stuck() or self._dead():
            return
        self._may_be_out_of_step = False
        everyone = list(self.engines)
        asking = self._call(everyone)
        self._wait(asking, readiness.has_groups)
        if all(decode(asking.answers[rank]) for rank in everyone):
            self._wait(self._call(everyone), readiness.renew_groups)

    def _choose(self, ranks: Iterable[int] | None) -> list[int]:
        """The wanted ranks in order, all of them alive and free."""
        chosen = sorted(self.engines) if ranks is None else sorted(set(ranks))
        if not chosen:
            raise ValueError("no rank named")
        if wrong := [rank for rank in chosen if rank not in self.engines]:
            raise ValueError(f"no rank {wrong[0]}: there are ranks 0 to {len(self) - 1}")
        if not self.is_open or self._connection.why_dead() or set(chosen) & set(self._dead()):
            raise DeadRankError(f"{self.problem()}: {AGAIN}")
        self._collect()
        if set(chosen) & set(self._stuck()):
            raise BusyRankError(f"{self.problem()}: {AGAIN}")
        return chosen

    def _dead(self) -> list[int]:
        known = set(self.client._engines.values())
        return [rank for rank, engine in self.engines.items() if engine.uuid not in known]

    def _stuck(self) -> list[int]:
        return sorted({rank for call in self._unfinished for rank in call.pending})

    def _collect(self) -> None:
        """See which ranks have come back from calls that were given up."""
        for call in self._unfinished:
            call.collect()
        self._unfinished = [call for call in self._unfinished if call.pending]


def current() -> Ranks:
    """The ranks of the cluster that was started last and is open.

    Raises:
        DeadRankError: There is none: start one.
    """
    if not _open:
        raise DeadRankError("no cluster runs: start one with `ranks = Cluster(n=2).start()`")
    return _open[-1]


def count(n: int) -> str:
    """So many ranks, in words."""
    return "1 rank" if n == 1 else f"{n} ranks"
