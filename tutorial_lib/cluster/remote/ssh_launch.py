"""Ranks on several hosts: the mpiexec of this interpreter, which reaches the hosts by ssh."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tutorial_lib.cluster import mpi_flavour
from tutorial_lib.cluster.errors import HostsError, MpiError
from tutorial_lib.cluster.hosts import (
    Host,
    address_of,
    address_towards,
    addresses_towards,
    is_loopback,
    place_ranks,
    read_hostfile,
    read_hosts,
)
from tutorial_lib.cluster.launch import Hosts, Launch, Request, settings_of
from tutorial_lib.cluster.mpi_flavour import MPIEXEC_VARIABLE, MpiFlavour
from tutorial_lib.cluster.remote import host_check, interfaces
from tutorial_lib.cluster.remote.remote_shell import SSH_VARIABLE
from tutorial_lib.cluster.remote.start_data import FILE_VARIABLE, START_VARIABLE
from tutorial_lib.cluster.runtime import FOLDER_VARIABLE, RUNTIME_VARIABLE, SILENCE_S

SETTINGS = frozenset({"hosts", "silence_s"})  # of a profile, beside those of all launchers
HOST_FILE, START_FILE = "hosts", "start.json"
SHELL_MODULE = "tutorial_lib.cluster.remote.remote_shell"
# What a rank on another host needs of this host's environment. Its PATH, HOME and folders for
# temporary files are its own.
PASSED_ON = (
    *("GAN_TUTORIAL_", "OMP_", "MKL_", "OPENBLAS_", "VECLIB_", "KMP_", "GOMP_", "PYTHON"),
    *("MPI4PY_", "MPICH_", "MPIR_", "FI_", "UCX_", "NCCL_", "GLOO_", "TORCH_", "ATEN_", "DNNL_"),
    *("ONEDNN_", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "LANG", "LC_", "TZ"),
)
KEPT_HERE = frozenset(
    {
        START_VARIABLE,
        FILE_VARIABLE,
        FOLDER_VARIABLE,
        RUNTIME_VARIABLE,
        SSH_VARIABLE,
        MPIEXEC_VARIABLE,
    }
)


def plan(request: Request) -> Launch:
    """Start the ranks on the hosts of a line or a host file, filled in order.

    Args:
        request: What is to be started.

    Raises:
        HostsError: The hosts can't be read or reached, or have too few slots.
        MpiError: There is no MPI, or it is not known how it takes hosts.
    """
    hosts = place_ranks(hosts_of(request.hosts, request.profile, request.settings), request.n)
    names = [host.name for host in hosts]
    addresses = addresses_towards(names)
    mpi = mpi_flavour.detect()
    silence_s = float(request.settings.get("silence_s", SILENCE_S))
    host_check.check([name for name in names if not is_here(name)])
    arguments, environment = over_ssh(mpi, hosts, addresses)
    command = [mpi.mpiexec, "-n", str(request.n), *arguments, *request.program]
    described = f"{mpi} over ssh on {', '.join(map(str, hosts))}"
    environment = {**mpi.environment, **environment, FILE_VARIABLE: START_FILE}
    return Launch(command, described, environment, tuple(names), silence_s)


def hosts_of(named: Hosts, profile: Path, settings: Mapping[str, Any]) -> list[Host]:
    """The hosts that the caller names, else those of the profile's host file.

    Args:
        named: A line, a host file, or None.
        profile: Folder of the profile.
        settings: Its settings; "hosts" is the path of a host file, from that folder on.

    Raises:
        HostsError: They can't be read, or there are none.
    """
    if isinstance(named, Path):
        return read_hostfile(named)
    if named is not None:
        return read_hosts(named)
    path = profile / settings.get("hosts", HOST_FILE)
    if not path.exists():
        raise HostsError(
            f"no hosts: write them into {path}, one a line, for example `node1 slots=2`; or name "
            'them: `--hosts node1:2,node2:2`, in a notebook Cluster(hosts="node1:2,node2:2")'
        )
    return read_hostfile(path)


def is_here(name: str) -> bool:
    """Whether a host is this one: its own address is the one that leads to it.

    Args:
        name: The host.
    """
    address = address_of(name)
    return is_loopback(address) or address == address_towards(name)


def over_ssh(
    mpi: MpiFlavour, hosts: Sequence[Host], addresses: Sequence[str]
) -> tuple[list[str], dict[str, str]]:
    """What an mpiexec must be told to start ranks on hosts over ssh.

    Args:
        mpi: The mpiexec.
        hosts: Where the ranks go, with ``slots`` as many as each gets.
        addresses: Of this host, those by which the hosts reach it.

    Returns:
        Its arguments, and environment variables for it.

    Raises:
        MpiError: It is not known how this mpiexec takes hosts.
    """
    listed = ",".join(map(str, hosts))
    shell = f"-P -m {SHELL_MODULE}"
    passed = sorted(name for name in os.environ if is_passed_on(name))
    match mpi.family:
        case "MPICH":
            arguments = ["-launcher", "ssh", "-launcher-exec", sys.executable, "-hosts", listed]
            arguments += ["-localhost", addresses[0], "-wdir", "/"]
            arguments += ["-genvlist", ",".join(passed)] if passed else ["-genvnone"]
            return [*arguments, *mpi.arguments()], {"HYDRA_LAUNCHER_EXTRA_ARGS": shell}
        case "Open MPI":
            subnets = ",".join(interfaces.subnet_here(address) for address in addresses)
            arguments = ["-host", listed, "-wdir", "/", *mpi.arguments()]
            for name in passed:
                arguments += ["-x", name]
            settings = {"plm_rsh_agent": f"{sys.executable} {shell}"}
            settings |= {"plm_rsh_no_tree_spawn": "1", "oob_tcp_if_include": subnets}
            environment = {f"OMPI_MCA_{name}": value for name, value in settings.items()}
            # Open MPI 5 leaves starting to PRRTE.
            environment |= {
                "PRTE_MCA_plm_ssh_agent": settings["plm_rsh_agent"],
                "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
                "PRTE_MCA_prte_if_include": subnets,
            }
            return arguments, environment
        case _:
            raise MpiError(
                f"{mpi.mpiexec} is of an {mpi.family}, and how it starts ranks on other hosts is "
                "not known here: use MPICH or Open MPI"
            )


def is_passed_on(name: str) -> bool:
    """Whether ranks on other hosts get an environment variable of this host.

    Args:
        name: Of the variable.
    """
    return name.startswith(PASSED_ON) and name not in KEPT_HERE


def for_ipcluster(mpi: MpiFlavour, profile: Path) -> tuple[list[str], dict[str, str]]:
    """What ipyparallel's MPI launcher needs to start engines on a profile's hosts.

    Args:
        mpi: The mpiexec.
        profile: Folder of the profile.

    Returns:
        Arguments and environment variables for mpiexec.

    Raises:
        HostsError: The profile has no hosts.
    """
    hosts = hosts_of(None, profile, settings_of(profile))
    arguments, environment = over_ssh(mpi, hosts, addresses_towards(host.name for host in hosts))
    return arguments, {**mpi.environment, **environment}


def address(profile: Path) -> str:
    """The address at which a profile's hosts reach this one; the loopback's without hosts.

    Args:
        profile: Folder of the profile.
    """
    try:
        hosts = hosts_of(None, profile, settings_of(profile))
    except HostsError:
        return "127.0.0.1"
    return addresses_towards(host.name for host in hosts)[0]
