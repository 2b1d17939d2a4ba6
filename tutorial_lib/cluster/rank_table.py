"""Who the ranks are, as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, overload

from tutorial_lib.cluster.connection import RankInfo
from tutorial_lib.display.text_table import text_table

State = Literal["ready", "importing torch", "stuck", "dead"]

HEADINGS = ("rank", "engine", "host", "process", "cores", "threads", "state", "MPI")


@dataclass(frozen=True)
class RankRow:
    """One rank.

    Attributes:
        info: What it said when it joined.
        threads: Threads its numerical libraries use now.
        state: Whether it takes work.
    """

    info: RankInfo
    threads: int
    state: State

    @property
    def cells(self) -> tuple[str, ...]:
        """What stands under the headings."""
        info = self.info
        numbers = (info.rank, info.engine_id, info.host, info.pid, info.cores, self.threads)
        return (*map(str, numbers), self.state, info.mpi)


class RankTable(Sequence[RankRow]):
    """Rows in rank order, shown as an aligned table of text.

    Args:
        rows: In rank order.
    """

    def __init__(self, rows: Sequence[RankRow]) -> None:
        self._rows = tuple(rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[RankRow]:
        return iter(self._rows)

    @overload
    def __getitem__(self, index: int) -> RankRow: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[RankRow]: ...
    def __getitem__(self, index: int | slice) -> RankRow | Sequence[RankRow]:
        return self._rows[index]

    def __repr__(self) -> str:
        return text_table(HEADINGS, [row.cells for row in self])
