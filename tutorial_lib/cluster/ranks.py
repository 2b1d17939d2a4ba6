"""The ranks as a notebook sees them: run on them, give them values, take values from them."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tutorial_lib.cluster import cell
from tutorial_lib.cluster.errors import BusyRankError, CellError, DeadRankError
from tutorial_lib.cluster.rank_call import Engine, RankCall
from tutorial_lib.cluster.relay import Relay

_current: list[Ranks] = []


class RemoteValue:
    """Stands for a value that can't leave its rank; shows as it does there."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True)
class RankInfo:
    """What a rank says of itself when it joins.

    Attributes:
        rank: In MPI.COMM_WORLD.
        engine_id: ipyparallel's number for it.
        host: Name of its host.
        pid: Its process.
        cores: Cores it may use.
        threads: Threads its numerical libraries use.
        mpi: Its MPI library.
    """

    rank: int
    engine_id: int
    host: str
    pid: int
    cores: int
    threads: int
    mpi: str


class Ranks:
    """A running cluster's ranks, always in the order of their rank.

    Made by ``Cluster``.

    Args:
        client: ipyparallel's client.
        engines: By rank.
        information: By rank.
        stop: What ends the cluster, or the connection to it.
        death: Says why the cluster is gone, or "".
    """

    def __init__(
        self,
        client: Any,
        engines: Mapping[int, Engine],
        information: Mapping[int, RankInfo],
        stop: Callable[[], None],
        death: Callable[[], str] = lambda: "",
    ) -> None:
        self.client = client
        self.engines = dict(sorted(engines.items()))
        self.information = dict(sorted(information.items()))
        self._stop = stop
        self._death = death
        self._stuck: list[RankCall] = []
        self._lock = threading.Lock()
        self.is_open = True
        _current.append(self)

    def __len__(self) -> int:
        return len(self.engines)

    def __repr__(self) -> str:
        return f"<{len(self)} ranks>" if self.is_open else "<ranks, stopped>"

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return len(self)

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
    ) -> dict[int, Any]:
        """Run code, or call a function, on the ranks and show what they print.

        Args:
            code: Source, as in a cell, or a function.
            *arguments: For the function.
            ranks: Which ones; None for all.
            number: For source: the cell's execution count, shown in tracebacks.

        Returns:
            By rank, the value of the last expression, or what the function returned. What can't
            be sent is represented by its text.

        Raises:
            CellError: It failed on a rank; the message names the rank and the cause.
            DeadRankError: A rank's process has ended: start the cluster again.
            BusyRankError: A rank is still stuck in an earlier cell: start the cluster again.
            KeyboardInterrupt: Interrupted here; the ranks have been interrupted too.
        """
        if isinstance(code, str):
            return self._run(cell.run_cell, code, number, ranks=ranks)
        return self._run(cell.call, code, arguments, ranks=ranks)

    def push(self, values: Mapping[str, object], ranks: Iterable[int] | None = None) -> None:
        """Set variables on the ranks.

        Args:
            values: By name.
            ranks: Which ones; None for all.
        """
        self._run(cell.push, dict(values), ranks=ranks)

    def pull(self, name: str, ranks: Iterable[int] | None = None) -> dict[int, Any]:
        """Get a variable from the ranks.

        Args:
            name: The variable, or an expression.
            ranks: Which ones; None for all.

        Returns:
            Its value by rank.
        """
        return self._run(cell.pull, name, ranks=ranks)

    def stop(self) -> None:
        """End the cluster, if it was started here, or leave it; again does no harm."""
        if self.is_open:
            self.is_open = False
            _current.remove(self)
            self._stop()

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        ranks: Iterable[int] | None = None,
        timeout_s: float | None = None,
    ) -> dict[int, Any]:
        chosen = self._choose(ranks)
        relay = Relay(chosen)
        call = RankCall(
            self.client,
            {rank: self.engines[rank] for rank in chosen},
            relay.take,
            self._why_dead,
        )
        try:
            call.send(function, *arguments)
            answers = call.wait(timeout_s)
        finally:
            relay.finish()
            if call.pending:
                self._stuck.append(call)
        _raise_first_error(answers, call.pending)
        return {rank: _decode(answers[rank]) for rank in chosen}

    def _choose(self, ranks: Iterable[int] | None) -> list[int]:
        """The wanted ranks in order, all of them alive and free."""
        if not self.is_open:
            raise DeadRankError("the cluster has been stopped: run the cell that starts it again")
        chosen = sorted(self.engines) if ranks is None else sorted(set(ranks))
        if wrong := [rank for rank in chosen if rank not in self.engines]:
            raise ValueError(f"no rank {wrong[0]}: there are ranks 0 to {len(self) - 1}")
        if not chosen:
            raise ValueError("name at least one rank")
        if reason := self._why_dead():
            raise DeadRankError(f"{reason}: run the cell that starts the cluster again")
        known = set(self.client._engines.values())
        if dead := [rank for rank in chosen if self.engines[rank].uuid not in known]:
            raise DeadRankError(
                f"rank {dead[0]} has died: run the cell that starts the cluster again"
            )
        for call in self._stuck:
            call._take(0)
        self._stuck = [call for call in self._stuck if call.pending]
        if stuck := sorted({rank for call in self._stuck for rank in call.pending} & set(chosen)):
            raise BusyRankError(
                f"rank {stuck[0]} is still stuck in an earlier cell and can't be interrupted: "
                "run the cell that starts the cluster again"
            )
        return chosen

    def _why_dead(self) -> str:
        return self._death()


def current() -> Ranks:
    """The ranks of the cluster that was started last and still runs.

    Raises:
        DeadRankError: There is none: run the cell that starts one.
    """
    if not _current:
        raise DeadRankError("no cluster runs: start one with `ranks = Cluster(n=2).start()`")
    return _current[-1]


def _decode(answer: dict[str, Any]) -> Any:
    if "value" not in answer:
        return RemoteValue(answer["text"])
    if answer["value"] is None:
        return None
    try:
        return pickle.loads(answer["value"])
    except Exception:  # for example of a class that only the ranks know
        return RemoteValue(answer["text"])


def _raise_first_error(answers: Mapping[int, dict[str, Any]], pending: list[int]) -> None:
    """Raise the root cause: what failed first, unless that was only interrupted."""
    failed = {rank: answer for rank, answer in answers.items() if answer["status"] != "ok"}
    if not failed:
        if pending:
            raise BusyRankError(f"rank {pending[0]} did not answer in time")
        return
    rank = min(failed, key=lambda rank: (failed[rank]["is_interrupt"], failed[rank]["time"]))
    cause = failed[rank]
    if cause["status"] == "dead":
        raise DeadRankError(
            f"rank {rank} has died: {cause['message']}. Run the cell that starts the cluster again."
        )
    if cause["is_interrupt"]:
        raise KeyboardInterrupt
    message = cause["message"]
    if cause["line"] is not None:
        message = f"{message} (line {cause['line']} of the cell)".strip()
    others = [
        *(
            f"rank {other} was interrupted in line {answer['line']}."
            for other, answer in failed.items()
            if other != rank and answer["is_interrupt"]
        ),
        *(
            f"rank {other}: {answer['name']}: {answer['message']}"
            for other, answer in failed.items()
            if other != rank and not answer["is_interrupt"]
        ),
        *(f"rank {other} could not be interrupted and is stuck." for other in pending),
    ]
    raise CellError(rank, cause["name"], message, cause["traceback"], "\n".join(others)) from None
