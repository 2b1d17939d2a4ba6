"""What can go wrong between a notebook and its engines, each error with its remedy."""

from __future__ import annotations


class ClusterError(RuntimeError):
    """Something is wrong with the engines as such."""


class MpiError(ClusterError):
    """No MPI, one that does not run, or one that does not fit mpi4py."""


class StartError(ClusterError):
    """The engines did not come up; the message names the rank and shows its log."""


class DeadRankError(ClusterError):
    """A rank's process has ended."""


class BusyRankError(ClusterError):
    """A rank is still stuck in an earlier cell and takes no new work."""


class CellError(RuntimeError):
    """A cell failed on a rank.

    Attributes:
        rank: Where the root cause is.
        name: Name of the exception there.
        traceback: Its traceback, formatted on the rank.
    """

    def __init__(self, rank: int, name: str, message: str, traceback: list[str], others: str = ""):
        where = f"rank {rank}: {name}"
        super().__init__(f"{where}: {message}" if message else where)
        self.rank = rank
        self.name = name
        self.traceback = traceback
        self.others = others

    def _render_traceback_(self) -> list[str]:
        """Show the rank's own traceback instead of the way of the call through the kernel."""
        lines = [str(self), "", *self.traceback]
        if self.others:
            lines += ["", self.others]
        return lines
