"""Who am I, and how many are we? The only module that knows how this process was started."""

import os
import socket
import stat
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

Launcher = Literal["single", "mpi", "torchrun", "environment"]

# One variable per way in which an MPI launcher tells a process its rank.
MPI_RANK_VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MPI_RANKID")
MPI_PREFIXES = ("PMI_", "PMIX_", "OMPI_COMM_WORLD_", "MPI_LOCAL")
TORCHRUN_VARIABLE = "TORCHELASTIC_RUN_ID"
TORCH_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
LOCAL_VARIABLES = ("LOCAL_RANK", "LOCAL_WORLD_SIZE")


@dataclass(frozen=True)
class Topology:
    """One process's place among the ranks.

    Attributes:
        rank: 0 to world_size - 1.
        world_size: Number of ranks.
        local_rank: Rank among the processes of this host.
        local_world_size: Number of ranks on this host.
        launcher: What started the ranks.
        host: Name of this host.
    """

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1
    launcher: Launcher = "single"
    host: str = ""

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0, which prints, draws and saves."""
        return self.rank == 0

    @property
    def is_one_host(self) -> bool:
        """Whether all ranks run on this host."""
        return self.local_world_size == self.world_size

    def among(self, hosts: Sequence[str]) -> "Topology":
        """The same place, with the local numbers that follow from every rank's host.

        Args:
            hosts: Name of each rank's host, in rank order.
        """
        local_rank = hosts[: self.rank].count(self.host)
        return replace(self, local_rank=local_rank, local_world_size=hosts.count(self.host))


def launcher() -> Launcher:
    """What started this process, as its environment tells.

    torchrun's mark comes first (it can itself be started by MPI), then MPI's, then RANK,
    WORLD_SIZE, MASTER_ADDR and MASTER_PORT set by hand.
    """
    if TORCHRUN_VARIABLE in os.environ:
        return "torchrun"
    if _is_started_by_mpi():
        return "mpi"
    if os.environ.get("RANK") or os.environ.get("WORLD_SIZE"):
        return "environment"
    return "single"


def _is_started_by_mpi() -> bool:
    """Whether MPI's variables are meant for this process.

    A rank's own children inherit them too. MPICH gives a rank a socket, ``PMI_FD``, which its
    children don't inherit; other MPIs have no such mark, and there the variables count.
    """
    if not any(name in os.environ for name in MPI_RANK_VARIABLES):
        return False
    try:
        return stat.S_ISSOCK(os.fstat(int(os.environ["PMI_FD"])).st_mode)
    except OSError:
        return False
    except (KeyError, ValueError):
        return True


def launcher_variables() -> dict[str, str]:
    """What launchers, or a person, have set in this process's environment to tell it its place.

    Returns:
        Values by name, in alphabetical order.
    """
    own = {*TORCH_VARIABLES, *LOCAL_VARIABLES, TORCHRUN_VARIABLE}
    names = [name for name in os.environ if name in own or name.startswith(MPI_PREFIXES)]
    return {name: os.environ[name] for name in sorted(names)}


def detect() -> Topology:
    """Find this process's rank, the world size and their local counterparts.

    Returns:
        The topology; world size 1 when nothing started us as one of many.

    Raises:
        ValueError: Of RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT some are set and others
            missing, or the numbers make no sense: correct the environment.

    **Distributed:** collective under MPI, where it initialises MPI and asks which ranks share
    a host.
    """
    host = socket.gethostname()
    match launcher():
        case "single":
            return Topology(host=host)
        case "mpi":
            from mpi4py import MPI

            world = MPI.COMM_WORLD
            local = world.Split_type(MPI.COMM_TYPE_SHARED)
            topology = Topology(world.rank, world.size, local.rank, local.size, "mpi", host)
            local.Free()
            return topology
        case started_by:
            _check_complete()
            rank, world_size = _number("RANK"), _number("WORLD_SIZE")
            if not 0 <= rank < world_size:
                raise ValueError(f"RANK={rank} must lie from 0 to WORLD_SIZE-1={world_size - 1}")
            if not 0 < (port := _number("MASTER_PORT")) < 65536:
                raise ValueError(f"MASTER_PORT={port} must lie from 1 to 65535")
            local_rank = _number("LOCAL_RANK", rank)
            local_world_size = _number("LOCAL_WORLD_SIZE", world_size)
            return Topology(rank, world_size, local_rank, local_world_size, started_by, host)


def _check_complete() -> None:
    if missing := [name for name in TORCH_VARIABLES if not os.environ.get(name)]:
        found = [name for name in TORCH_VARIABLES if name not in missing]
        raise ValueError(
            f"the environment has {' and '.join(found)}, but no {' and no '.join(missing)}: set "
            f"all of {', '.join(TORCH_VARIABLES)}, or none to train in one process"
        )


def _number(name: str, default: int | None = None) -> int:
    text = os.environ.get(name)
    if text is None and default is not None:
        return default
    try:
        return int(text or "")
    except ValueError:
        message = f"environment variable {name} must be a whole number, but is {text!r}"
        raise ValueError(message) from None


def available_cores() -> int:
    """Number of CPU cores this process may use: its affinity, limited by a container's quota."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    try:
        with open("/sys/fs/cgroup/cpu.max", encoding="ascii") as file:
            quota, period = file.read().split()
        if quota != "max":
            cores = min(cores, max(1, int(quota) // int(period)))
    except (OSError, ValueError):
        pass  # no cgroup v2, so no quota to respect
    return cores


def threads_per_rank(local_world_size: int) -> int:
    """Threads for each of the ranks of one host, so that all together use its cores once.

    More threads than cores are far worse than idle cores: waiting threads spin and keep the
    working ones from running.

    Args:
        local_world_size: Number of ranks on this host.

    Returns:
        cores // local_world_size, at least 1.
    """
    return max(1, available_cores() // local_world_size)
