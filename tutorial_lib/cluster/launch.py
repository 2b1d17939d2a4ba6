"""What starts the ranks of a profile: mpiexec here, mpiexec over ssh, or a batch system.

A profile's ``ranks_config.py`` says it: ``c.Ranks.launcher = "ssh"``, with what else that launcher
needs as ``c.Ranks.<name>``. A profile without one starts ranks on this host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from tutorial_lib.cluster import mpi_flavour
from tutorial_lib.cluster.errors import ClusterError, HostsError
from tutorial_lib.cluster.profiles import profile_folder
from tutorial_lib.cluster.runtime import SILENCE_S
from tutorial_lib.distributed.gpu_placement import DEVICE_VARIABLE

CONFIG_FILE = "ranks_config.py"

Hosts = str | Path | None  # "node1:2,node2:2", a host file, or what the profile says


@dataclass(frozen=True)
class Request:
    """What is to be started.

    Attributes:
        profile: Folder of the profile.
        settings: What the profile says of ``c.Ranks``.
        n: Number of ranks.
        program: Command line of one rank.
        hosts: Where, if the caller says it.
    """

    profile: Path
    settings: Mapping[str, Any]
    n: int
    program: tuple[str, ...]
    hosts: Hosts = None


@dataclass(frozen=True)
class Launch:
    """How it is started.

    Attributes:
        command: The whole command line.
        mpi: The MPI that starts the ranks, in words.
        environment: Variables that the command needs.
        peers: Hosts on which ranks may run, by name or address; empty when all run here, with
            nothing but the loopback interface between them and the controller.
        silence_s: After so long without a sign of life a rank on a peer is lost, in seconds.
        withdraw: For a command that stands for a batch job (see ``job_note``), which may wait in
            a queue, and be ended by others: the command line that takes the job back, with
            "{cluster}" for the name of the cluster's folder.
    """

    command: list[str]
    mpi: str
    environment: dict[str, str] = field(default_factory=dict)
    peers: tuple[str, ...] = ()
    silence_s: float = SILENCE_S
    withdraw: list[str] = field(default_factory=list)


Planner = Callable[[Request], Launch]

LAUNCHERS = {  # name -> module with ``plan(request)`` and the ``SETTINGS`` that it knows
    "mpiexec": "launch",
    "ssh": "remote.ssh_launch",
    "slurm": "slurm.launch",
}
DEFAULT_LAUNCHER = "mpiexec"
COMMON_SETTINGS = frozenset({"launcher", "device"})
SETTINGS: frozenset[str] = frozenset()  # mpiexec on this host takes no more


def settings_of(profile: Path) -> dict[str, Any]:
    """Read ``c.Ranks`` from a profile's configuration.

    Args:
        profile: The profile's folder.

    Raises:
        ClusterError: The configuration fails, or holds a setting that its launcher doesn't know:
            the message says how, or which there are.
    """
    from traitlets.config.loader import PyFileConfigLoader

    path = profile / CONFIG_FILE
    if not path.exists():
        return {}
    try:
        config = PyFileConfigLoader(path.name, str(profile)).load_config()
    except ClusterError:
        raise
    except Exception as error:
        raise ClusterError(f"{path} fails: {type(error).__name__}: {error}") from error
    settings = dict(config.get("Ranks", {}))
    _refuse_unknown(settings, path)
    return settings


def _refuse_unknown(settings: Mapping[str, Any], path: Path) -> None:
    """A misspelt setting would start ranks elsewhere than was asked for, with no word of it."""
    launcher = settings.get("launcher", DEFAULT_LAUNCHER)
    if launcher not in LAUNCHERS:
        return  # which is refused where it is used
    known = COMMON_SETTINGS | _module(launcher).SETTINGS
    if unknown := sorted(set(settings) - known):
        raise ClusterError(
            f"{path}: c.Ranks.{unknown[0]} is not known to the launcher {launcher!r}, which has "
            f"{', '.join(sorted(known))}"
        )


def _module(launcher: str) -> Any:
    return import_module(f"tutorial_lib.cluster.{LAUNCHERS[launcher]}")


def plan_launch(profile: str, n: int, program: tuple[str, ...], hosts: Hosts = None) -> Launch:
    """Find out how the ranks of a profile are started.

    Args:
        profile: Its name.
        n: Number of ranks.
        program: Command line of one rank.
        hosts: Where; None for what the profile says.

    Raises:
        ClusterError: There is no such profile, or launcher.
        MpiError: There is no MPI.
        HostsError: The hosts are not to be had: the message says which and why.
    """
    folder = profile_folder(profile)
    settings = settings_of(folder)
    name = settings.get("launcher", DEFAULT_LAUNCHER)
    if name not in LAUNCHERS:
        raise ClusterError(
            f"{folder / CONFIG_FILE}: no launcher {name!r}; there are {sorted(LAUNCHERS)}"
        )
    planner: Planner = _module(name).plan
    launch = planner(Request(folder, settings, n, program, hosts))
    if device := settings.get("device"):
        launch.environment.setdefault(DEVICE_VARIABLE, str(device))
    return launch


def plan(request: Request) -> Launch:
    """Start the ranks on this host by the mpiexec beside the interpreter.

    Args:
        request: What is to be started.

    Raises:
        MpiError: There is no MPI.
        HostsError: Hosts were named.
    """
    if request.hosts is not None:
        raise HostsError(
            f"hosts {str(request.hosts)!r}: {request.profile.name} starts ranks on this host only; "
            "name a profile that takes hosts: ssh"
        )
    mpi = mpi_flavour.detect()
    return Launch(mpi.command(request.n, *request.program), str(mpi), mpi.environment)
