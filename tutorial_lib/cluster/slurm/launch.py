"""Ranks as a SLURM job: what is asked of sbatch, and what the job runs."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tutorial_lib.cluster import mpi_flavour
from tutorial_lib.cluster.errors import ClusterError, HostsError
from tutorial_lib.cluster.hosts import address_towards, addresses_towards
from tutorial_lib.cluster.launch import Launch, Request, settings_of
from tutorial_lib.cluster.mpi_flavour import MpiFlavour
from tutorial_lib.cluster.runtime import SILENCE_S
from tutorial_lib.cluster.slurm import commands

JOB_MODULE = "tutorial_lib.cluster.slurm.job"
QUEUE_TIMEOUT_S = 600.0
MOST_ASKED = 16  # so many nodes tell by which addresses this host is reached
BY_MPIEXEC = "mpiexec"

# By the name of a setting, the option of sbatch that has its value.
OPTIONS = {
    "partition": "--partition={}",
    "account": "--account={}",
    "nodes": "--nodes={}",
    "gpus": "--gres=gpu:{}",
    "time": "--time={}",
}
SETTINGS = frozenset({*OPTIONS, "options", "queue_timeout_s", "silence_s", "mpi"})
# The log lies in the cluster's folder, which a node may not have; then SLURM drops it.
SCRIPT = """\
#!/bin/sh
if ( : >> "$GAN_TUTORIAL_CLUSTER/log/mpiexec.log" ) 2>/dev/null; then
  exec >> "$GAN_TUTORIAL_CLUSTER/log/mpiexec.log" 2>&1
fi
exec {command}
"""


def plan(request: Request) -> Launch:
    """Start the ranks as one job.

    Args:
        request: What is to be started.

    Raises:
        ClusterError: There is no SLURM here, or a setting makes no sense.
        MpiError: There is no MPI.
        HostsError: Hosts were named, or none of the nodes can be found.
    """
    if request.hosts is not None:
        raise HostsError(
            f"hosts {str(request.hosts)!r}: SLURM chooses them; "
            'to name some, add "--nodelist=..." to c.Ranks.options'
        )
    settings = request.settings
    mpi = mpi_flavour.detect()
    kind = mpi_kind(mpi, str(settings.get("mpi", "")), commands.mpi_types())
    options = sbatch_options(settings, request.n)
    script = SCRIPT.format(command=shlex.join(rank_command(mpi, kind, request.n, request.program)))
    queue_timeout_s = float(settings.get("queue_timeout_s", QUEUE_TIMEOUT_S))
    return Launch(
        command=[
            *(sys.executable, "-P", "-m", JOB_MODULE, f"--queue-timeout={queue_timeout_s:g}"),
            *(f"--sbatch={option}" for option in options),
            script,
        ],
        mpi=f"{mpi} by SLURM ({kind})",
        environment=mpi.environment,
        peers=_peers(str(settings.get("partition", ""))),
        silence_s=float(settings.get("silence_s", SILENCE_S)),
        withdraw=commands.cancel_named(f"{commands.JOB_PREFIX}{{cluster}}"),
    )


def sbatch_options(settings: Mapping[str, Any], n: int) -> list[str]:
    """What a job asks for.

    Args:
        settings: Of the profile; a value that is empty or missing is SLURM's to choose.
        n: Number of ranks.

    Returns:
        Options of sbatch.

    Raises:
        ClusterError: ``options`` is not a list.
    """
    own = settings.get("options", [])
    if isinstance(own, str):
        raise ClusterError(f'c.Ranks.options = {own!r}: write a list, such as ["--qos=debug"]')
    asked = [
        option.format(settings[name]) for name, option in OPTIONS.items() if settings.get(name)
    ]
    # A job that starts again would not be of this cluster any more.
    fixed = ["--no-requeue", "--export=ALL", "--chdir=/", "--output=/dev/null"]
    return [f"--ntasks={n}", *fixed, *asked, *map(str, own)]


def mpi_kind(mpi: MpiFlavour, wanted: str, offered: set[str]) -> str:
    """How ranks of a job are started: by srun, and then in which language, or by mpiexec.

    Args:
        mpi: The MPI of this interpreter.
        wanted: What the profile says; "" chooses.
        offered: What this srun speaks.

    Returns:
        "pmi2" or "pmix", for srun, or "mpiexec".

    Raises:
        ClusterError: srun does not speak what is wanted.
    """
    if wanted and wanted != BY_MPIEXEC and wanted not in offered:
        raise ClusterError(
            f"c.Ranks.mpi = {wanted!r}, but `srun --mpi=list` has {', '.join(sorted(offered))}: "
            f'take one of those, or "{BY_MPIEXEC}"'
        )
    if wanted:
        return wanted
    known = {"MPICH": "pmi2", "Intel MPI": "pmi2", "Open MPI": "pmix"}.get(mpi.family)
    return known if known in offered and known is not None else BY_MPIEXEC


def rank_command(mpi: MpiFlavour, kind: str, n: int, program: Sequence[str]) -> list[str]:
    """The command line that starts the ranks inside their job.

    Args:
        mpi: The MPI of this interpreter.
        kind: As of ``mpi_kind``.
        n: Number of ranks.
        program: Command line of one rank.
    """
    if kind == BY_MPIEXEC:  # MPICH's and Open MPI's find the nodes of a job by themselves
        return mpi.command(n, *program)
    srun = ["srun", f"--mpi={kind}", "--kill-on-bad-exit=1", "--export=ALL"]
    return [*srun, f"--ntasks={n}", *program]


def template(profile: Path) -> str:
    """The batch script with which ipyparallel's own launcher starts the same job.

    Args:
        profile: Folder of the profile.

    Raises:
        ClusterError: There is no SLURM here, or a setting makes no sense.
        MpiError: There is no MPI.
    """
    settings = settings_of(profile)
    mpi = mpi_flavour.detect()
    kind = mpi_kind(mpi, str(settings.get("mpi", "")), commands.mpi_types())
    lines = [f"#SBATCH {option}" for option in sbatch_options(settings, 1)[1:]]
    command = rank_command(mpi, kind, 1, ["--", "--mpi"])
    starter = shlex.join(command[: command.index("--")])
    starter = starter.replace("-n 1", "-n {n}").replace("--ntasks=1", "--ntasks={n}")
    name, tasks = "#SBATCH --job-name=ipengine-{cluster_id}", "#SBATCH --ntasks={n}"
    return "\n".join(
        ["#!/bin/sh", name, tasks, *lines, f"exec {starter} {{program_and_args}} --mpi"]
    )


def address(profile: Path) -> str:
    """The address at which a profile's nodes reach this host.

    Args:
        profile: Folder of the profile.

    Raises:
        HostsError: None of the nodes can be found.
    """
    return addresses_towards(_peers(str(settings_of(profile).get("partition", ""))))[0]


def _peers(partition: str) -> tuple[str, ...]:
    """Some nodes that this host can name, to learn by which of its addresses they reach it."""
    nodes = commands.node_addresses(partition)
    step = max(1, len(nodes) // MOST_ASKED)
    found = []
    for node in nodes[::step]:
        with contextlib.suppress(HostsError):
            address_towards(node)
            found.append(node)
    if not found:
        raise HostsError(
            f"none of SLURM's nodes ({', '.join(nodes[:4])} ...) can be found from here: look "
            "whether their names resolve, and whether there is a route"
        )
    return tuple(found)
