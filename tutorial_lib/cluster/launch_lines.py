"""The lines that start ranks on hosts, as people type them: Open MPI, MPICH, SLURM."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Literal, get_args

from tutorial_lib.cluster.errors import HostsError
from tutorial_lib.cluster.hosts import Host, place_ranks

LineLauncher = Literal["Open MPI", "MPICH", "srun"]
LAUNCHERS: tuple[LineLauncher, ...] = get_args(LineLauncher)


def homes(hosts: Sequence[Host], n: int, is_by_node: bool = False) -> list[str]:
    """The host of each rank.

    Args:
        hosts: With the slots that each has.
        n: Number of ranks.
        is_by_node: Whether ranks are dealt out one to each host in turn, as long as it has slots;
            else the first host is filled first.

    Returns:
        (n,) names of hosts, by rank.

    Raises:
        HostsError: There are fewer slots than ranks.
    """
    if not is_by_node:
        return [host.name for host in place_ranks(hosts, n) for _ in range(host.slots)]
    place_ranks(hosts, n)  # refuses too many
    deals = range(max(host.slots for host in hosts))
    return [host.name for deal in deals for host in hosts if deal < host.slots][:n]


def launch_line(
    launcher: LineLauncher,
    hosts: Sequence[Host],
    n: int,
    program: Sequence[str],
    is_by_node: bool = False,
) -> str:
    """The command line by which a launcher starts a program on the slots of some hosts.

    Args:
        launcher: "Open MPI", "MPICH" or "srun".
        hosts: With the slots that each has.
        n: Number of ranks.
        program: The program and its arguments.
        is_by_node: See ``homes``.

    Returns:
        The line, quoted for a shell.

    Raises:
        HostsError: There are fewer slots than ranks; or MPICH is to deal out ranks by node to
            hosts of unequal slots, which it can't.
        ValueError: Another launcher.

    **Source:** the manuals of Open MPI's mpirun (-host, --map-by), of MPICH's Hydra (-hosts,
    -ppn), and of SLURM's srun (--nodelist, --ntasks-per-node, --distribution, SLURM_HOSTFILE).
    """
    listed = ",".join(map(str, hosts))
    where = homes(hosts, n, is_by_node)
    match launcher:
        case "Open MPI":
            by_node = ["--map-by", "node"] if is_by_node else []
            words = ["mpirun", "-np", str(n), *by_node, "-host", listed]
        case "MPICH" if is_by_node:
            if len({host.slots for host in hosts}) > 1:
                raise HostsError(
                    f"MPICH deals out ranks by node only to hosts of equally many slots, not to "
                    f"{listed}: name each with as many, or fill them in order"
                )
            names = ",".join(host.name for host in hosts)
            words = ["mpiexec", "-n", str(n), "-ppn", "1", "-hosts", names]
        case "MPICH":
            words = ["mpiexec", "-n", str(n), "-hosts", listed]
        case "srun":
            return f"{_srun(where, is_by_node)} {shlex.join(program)}"
        case _:
            raise ValueError(f"no launcher {launcher!r}; there are {', '.join(LAUNCHERS)}")
    return shlex.join([*words, *program])


def _srun(where: Sequence[str], is_by_node: bool) -> str:
    names = list(dict.fromkeys(where))
    counts = {where.count(name) for name in names}
    if len(counts) == 1:
        distribution = "cyclic" if is_by_node else "block"
        return (
            f"srun --nodes={len(names)} --ntasks={len(where)} --ntasks-per-node={counts.pop()} "
            f"--nodelist={','.join(names)} --distribution={distribution}"
        )
    # Unequal shares are a list of each rank's host, in a file.
    return (
        f"printf '%s\\n' {' '.join(where)} > ranks.txt && SLURM_HOSTFILE=ranks.txt "
        f"srun --ntasks={len(where)} --distribution=arbitrary"
    )
