"""Cells that set the ranks up, kept to run again on new ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Cell:
    """A cell that a reader has written for the ranks.

    Attributes:
        source: The cell.
        number: Its execution count.
        heading: The magic's line.
        ranks: Which run it; None for all.
        variables: What was pushed for it.
        is_unfolded: Whether the output of all ranks is in the open.
        is_setup: Whether it is to run again on new ranks.
    """

    source: str
    number: int = 0
    heading: str = ""
    ranks: Sequence[int] | None = None
    variables: Mapping[str, object] = field(default_factory=dict)
    is_unfolded: bool = False
    is_setup: bool = False


class Replay:
    """The set-up cells in the order in which they first ran."""

    def __init__(self) -> None:
        self.cells: list[Cell] = []

    def keep(self, cell: Cell) -> None:
        """Keep a cell that has run well; one that runs again, or anew, takes its old place.

        A notebook does not say which cell is which: the same source is the same cell.
        """
        for place, known in enumerate(self.cells):
            if known.source == cell.source and known.ranks == cell.ranks:
                self.cells[place] = cell
                return
        self.cells.append(cell)
