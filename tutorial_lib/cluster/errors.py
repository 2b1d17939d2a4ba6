"""What can go wrong between a notebook and its ranks, each error with its remedy."""

from __future__ import annotations

import re

AGAIN = "ranks.restart() starts new ones, or run the cell that starts the cluster again"

_COLOURS = re.compile(r"\x1b\[[\d;]*m")


class ClusterError(RuntimeError):
    """Something is wrong with the cluster as such."""

    def _render_traceback_(self) -> list[str]:
        """What IPython shows: the message, which is written for the reader, and nothing else."""
        return [f"{type(self).__name__}: {self}"]


class MpiError(ClusterError):
    """There is no MPI, it does not run, or mpiexec and mpi4py are of different MPIs."""


class StartError(ClusterError):
    """The ranks did not come up; the message names the rank and shows its log."""


class HostsError(StartError):
    """Hosts are named in a way that can't be read, there are too few, or one can't be reached."""


class DeadRankError(ClusterError):
    """A rank's process has ended, or the whole cluster has."""


class BusyRankError(ClusterError):
    """A rank is stuck in an earlier cell and takes no new work."""


class CellError(RuntimeError):
    """A cell failed on a rank.

    Args:
        rank: Where it failed first.
        name: Of the exception there.
        message: Of the exception there.
        traceback: Of the exception there, formatted.
        others: What came of the other ranks, one line each.
    """

    def __init__(
        self, rank: int, name: str, message: str, traceback: list[str], others: list[str]
    ) -> None:
        super().__init__(f"rank {rank}: {name}: {message}" if message else f"rank {rank}: {name}")
        self.rank = rank
        self.name = name
        self.traceback = traceback
        self.others = others
        self.add_note(_COLOURS.sub("", "\n".join([*traceback, *others])))

    def _render_traceback_(self) -> list[str]:
        """What IPython shows: the rank's traceback, not the way of the call through the kernel."""
        return [str(self), *self.traceback, *self.others]
