"""The ranks as a notebook sees them: run on them, give them values, take values from them."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from tutorial_lib.cluster import cell, preflight, readiness
from tutorial_lib.cluster.connection import Connection
from tutorial_lib.cluster.control_channel import ControlChannel, Engine
from tutorial_lib.cluster.dispatcher import DEFAULT, Dispatcher, Options
from tutorial_lib.cluster.errors import BusyRankError, CellError, ClusterError, DeadRankError
from tutorial_lib.cluster.rank_table import RankRow, RankTable
from tutorial_lib.cluster.relay import Relay
from tutorial_lib.cluster.replay import Cell, Replay
from tutorial_lib.cluster.whereabouts import Whereabouts, count, read
from tutorial_lib.display.findings import Report

_open: list[Ranks] = []


class Ranks:
    """The ranks of a running cluster, always in the order of their rank; made by ``Cluster``.

    Args:
        connection: To the cluster.
        options: For when something goes wrong.
        reconnect: Starts new ranks in place of those that are gone; None when they aren't ours.
    """

    def __init__(
        self,
        connection: Connection,
        options: Options = DEFAULT,
        reconnect: Callable[[], Connection] | None = None,
    ) -> None:
        self.options = options
        self.replay = Replay()
        self._reconnect = reconnect
        self._work = Dispatcher(connection, options)
        _open.append(self)
        self._activate()

    @property
    def client(self) -> Any:
        """The client of ipyparallel."""
        return self._work.control.client

    @property
    def engines(self) -> Mapping[int, Engine]:
        """By rank, how it is reached."""
        return self._work.control.engines

    @property
    def control(self) -> ControlChannel:
        """Reaches the ranks while they work."""
        return self._work.control

    @property
    def is_open(self) -> bool:
        """Whether they have not been stopped."""
        return self._work.is_open

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
        return {rank: info.log for rank, info in self._work.information.items()}

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
            chosen = self._work.choose(ranks)
            relay = Relay(chosen, is_whole_cell=bool(heading), is_unfolded=is_unfolded)
            return self._work.run(chosen, cell.run_cell, code, number, heading, relay=relay)
        return self._work.run(ranks, cell.call, code, arguments)

    def push(self, variables: Mapping[str, object], ranks: Iterable[int] | None = None) -> None:
        """Set variables on the ranks.

        Args:
            variables: Their values by name.
            ranks: Which ones; None for all.
        """
        self._work.run(ranks, cell.push, dict(variables))

    def pull(self, name: str, ranks: Iterable[int] | None = None) -> dict[int, Any]:
        """Get a variable from the ranks.

        Args:
            name: Of the variable, or an expression.
            ranks: Which ones; None for all.

        Returns:
            Its value by rank.
        """
        return self._work.run(ranks, cell.pull, name)

    def where(self) -> Whereabouts:
        """What every rank is doing now: its line, its stack, and what it waits for.

        From another thread this works while a cell runs; from a terminal, use
        ``gan-tutorial cluster where``.
        """
        return read(self.control.ask("where"), self.engines)

    def restart(self) -> Ranks:
        """End the ranks, start new ones, and run the cells of ``%%ranks --setup`` on them again.

        Returns:
            Itself: the ranks are new, with nothing in them but what the set-up cells made.

        Raises:
            ClusterError: The ranks belong to a cluster that was not started here.
            CellError: A set-up cell failed.
        """
        if self._reconnect is None:
            raise ClusterError(
                "these ranks were started elsewhere: stop and start them there, then run the "
                "cell that joins them again"
            )
        if self not in _open:
            _open.append(self)
        ending = threading.Thread(target=self._work.close)
        ending.start()  # the new ranks need not wait for the end of the old ones
        try:
            self._work = Dispatcher(self._reconnect(), self.options)
        finally:
            ending.join()
        self._activate()
        for kept in list(self.replay.cells):
            self.run_cell(kept)
        return self

    def run_cell(self, written: Cell) -> dict[int, Any]:
        """Run a cell of the notebook; a set-up cell is kept for ``restart``.

        Args:
            written: The cell.

        Returns:
            As ``run``.
        """
        if written.variables:
            self.push(written.variables, written.ranks)
        values = self.run(
            written.source,
            ranks=written.ranks,
            number=written.number,
            heading=written.heading,
            is_unfolded=written.is_unfolded,
        )
        if written.is_setup:
            self.replay.keep(written)
        return values

    def status(self) -> RankTable:
        """Who the ranks are and how they do: host, process, cores, threads, state, MPI."""
        states = self._work.states()
        threads: dict[int, Any] = {}
        if ready := [rank for rank, state in states.items() if state == "ready"]:
            with contextlib.suppress(CellError, BusyRankError, DeadRankError):
                threads = self._work.run(ready, cell.call, readiness.threads, (len(self),))
        return RankTable(
            [
                RankRow(info, threads.get(rank, info.threads), states[rank])
                for rank, info in self._work.information.items()
            ]
        )

    def preflight(self, data_dir: str = "", checkpoint_dir: str = ".") -> Report:
        """Whether all hosts are ready for a training; see ``tutorial_lib.cluster.preflight``.

        Args:
            data_dir: A folder of data that every rank must have; "" for MNIST as it comes with
                the package.
            checkpoint_dir: Where rank 0 will write.

        Returns:
            A line for each check.
        """

        def everyone(
            seconds: float, function: Callable[..., object], *arguments: object
        ) -> dict[int, Any]:
            answers = self._work.ask(seconds, cell.call, function, arguments)
            return {rank: preflight.value_of(answers.get(rank), seconds) for rank in self.engines}

        folders = [str(Path(name).resolve()) if name else "" for name in (data_dir, checkpoint_dir)]
        return preflight.examine(everyone, *folders)

    def problem(self) -> str:
        """Why the ranks can't take work, or "" when they can."""
        return self._work.problem()

    def stop(self) -> None:
        """End the cluster, if it was started here, or leave it; again does no harm."""
        if self.is_open:
            _open.remove(self)
            self._work.close()
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


def current() -> Ranks:
    """The ranks of the cluster that was started last and is open.

    Raises:
        DeadRankError: There is none: start one.
    """
    if not _open:
        raise DeadRankError("no cluster runs: start one with `ranks = Cluster(n=2).start()`")
    return _open[-1]
