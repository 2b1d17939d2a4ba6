"""``%%ranks``: run a notebook's cell on the ranks."""

from __future__ import annotations

from typing import Any, NamedTuple

from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, line_magic, magics_class, no_var_expand

from tutorial_lib.cluster.ranks import current
from tutorial_lib.cluster.replay import Cell
from tutorial_lib.cluster.whereabouts import Whereabouts
from tutorial_lib.display.findings import Report

USAGE = "use %%ranks, %%ranks 0, %%ranks 0,2, %%ranks --all, %%ranks --setup or %%ranks --push a,b"


class Line(NamedTuple):
    """What stands behind ``%%ranks``.

    Attributes:
        ranks: On which to run; None for all.
        names: Of the notebook's variables to set there first.
        is_unfolded: Whether the output of all ranks is in the open.
        is_setup: Whether the cell is to run again on new ranks after a restart.
    """

    ranks: list[int] | None
    names: list[str]
    is_unfolded: bool
    is_setup: bool


@magics_class
class RanksMagics(Magics):
    """The magics of a cluster."""

    @no_var_expand
    @cell_magic
    def ranks(self, line: str, source: str) -> dict[int, Any] | None:
        """Run the cell on the ranks.

        ``%%ranks`` on all, ``%%ranks 0`` or ``%%ranks 0,2`` on some, ``%%ranks --push a,b``
        with variables of the notebook set there first. What ranks other than the first print
        is folded to its last line; with ``--all`` it is in the open. A cell with ``--setup`` runs
        again when the ranks are started anew by ``%ranks_restart``.

        Args:
            line: Which ranks, and what to push.
            source: The cell.

        Returns:
            The value of its last expression by rank; None when it has none on any rank.
        """
        shell: Any = self.shell
        asked = parse(line)
        if missing := [name for name in asked.names if name not in shell.user_ns]:
            raise UsageError(f"--push: the notebook has no variable {missing[0]!r}")
        values = current().run_cell(
            Cell(
                source,
                shell.displayhook.prompt_count,
                f"%%ranks {line}".strip(),
                asked.ranks,
                {name: shell.user_ns[name] for name in asked.names},
                asked.is_unfolded,
                asked.is_setup,
            )
        )
        return values if any(value is not None for value in values.values()) else None

    @line_magic
    def ranks_where(self, line: str) -> Whereabouts:
        """What every rank is doing now, with its stack."""
        return current().where()

    @line_magic
    def ranks_preflight(self, line: str) -> Report:
        """Whether all hosts are ready for a training; a folder of data may stand behind it."""
        return current().preflight(line.strip())

    @line_magic
    def ranks_restart(self, line: str) -> None:
        """End the ranks, start new ones, and run the cells of ``%%ranks --setup`` on them again."""
        current().restart()


def parse(line: str) -> Line:
    """Read the line of ``%%ranks``.

    Args:
        line: What stands behind ``%%ranks``.

    Returns:
        What it asks for.

    Raises:
        UsageError: It is something else.
    """
    ranks: list[int] | None = None
    names: list[str] = []
    is_unfolded = is_setup = False
    words = line.replace("=", " ").split()
    while words:
        word = words.pop(0)
        if word == "--push" and words:
            names += [name for name in words.pop(0).split(",") if name]
        elif word == "--setup":
            is_setup = True
        elif word == "--all":
            ranks, is_unfolded = None, True
        elif all(part.strip().isdigit() for part in word.split(",")):
            ranks = sorted({int(part) for part in word.split(",")} | set(ranks or ()))
        else:
            raise UsageError(f"{word!r}: {USAGE}")
    return Line(ranks, names, is_unfolded, is_setup)
