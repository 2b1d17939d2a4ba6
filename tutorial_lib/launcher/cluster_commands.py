"""``gan-tutorial cluster``: ranks from the shell."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tutorial_lib.cluster.profiles import profile_folder, profile_folders, profile_names

cluster = typer.Typer(
    no_args_is_help=True,
    help=(
        "Ranks that run on their own, until you stop them.\n\n"
        "A notebook starts the ranks that it needs and ends them with itself. Start some here to "
        "keep them, and what they hold, when the notebook's kernel is restarted: the notebook "
        "joins them."
    ),
)


def _profiles(incomplete: str) -> list[str]:
    """What the Tab key offers for a profile."""
    return [name for name in profile_names() if name.startswith(incomplete)]


Profile = Annotated[
    str,
    typer.Option(help="Which profile of cluster_profiles/ starts them.", autocompletion=_profiles),
]


@cluster.command(epilog="Example: gan-tutorial cluster start -n 4")
def start(
    ranks: Annotated[int, typer.Option("--ranks", "-n", min=1, help="How many.")] = 2,
    profile: Profile = "mpi",
    hosts: Annotated[
        str, typer.Option(help="Where, with the ranks each takes: node1:2,node2:2 (profile ssh).")
    ] = "",
    hostfile: Annotated[
        Path | None,
        typer.Option(help="Where, as a file: a line `node1 slots=2` each.", show_default=False),
    ] = None,
    timeout_s: Annotated[
        float, typer.Option("--timeout", min=1, help="Give up after so many seconds.")
    ] = 60.0,
) -> None:
    """Start MPI ranks, and return when all of them have passed an all-reduce."""
    from tutorial_lib.cluster import start_cluster

    if hosts and hostfile:
        raise typer.BadParameter("name hosts by --hosts or by --hostfile, not by both")
    typer.echo(start_cluster(ranks, profile, timeout_s, hosts or hostfile))


@cluster.command(epilog="A notebook can show more of its ranks: ranks.status() in a cell.")
def status() -> None:
    """List the ranks that run on this machine; the exit status is 1 if there are none."""
    from tutorial_lib.cluster import cluster_status

    running = cluster_status()
    for one in running:
        typer.echo(one)
    if not running:
        typer.echo("no ranks are running")
        raise typer.Exit(1)


@cluster.command(epilog="In a notebook whose kernel is free: ranks.where().")
def where() -> None:
    """Say what every rank is doing now, with its stack, while a notebook's cell runs too.

    The exit status is 1 if there are no ranks.
    """
    from tutorial_lib.cluster import where as find_ranks

    found = find_ranks()
    for title, places in found:
        typer.echo(f"{title}\n{places!r}")
    if not found:
        typer.echo("no ranks are running")
        raise typer.Exit(1)


@cluster.command(epilog="Example: gan-tutorial cluster stop")
def stop(profile: Profile = "mpi") -> None:
    """Stop ranks that run on their own; those of a notebook are left to it."""
    from tutorial_lib.cluster import stop_cluster

    if not profile_folders(profile):
        profile_folder(profile)  # raises, and says which there are
    stopped = stop_cluster(profile)
    typer.echo(f"stopped {stopped}" if stopped else "nothing to stop")


@cluster.command(epilog="Example: gan-tutorial cluster preflight -n 4 --data-dir /shared/mnist")
def preflight(
    ranks: Annotated[int, typer.Option("--ranks", "-n", min=1, help="How many.")] = 2,
    profile: Annotated[
        str,
        typer.Option(
            help="As of `start`; without, any that run are asked.", autocompletion=_profiles
        ),
    ] = "",
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Data that every rank must have, if not the package's MNIST."),
    ] = None,
    checkpoint_dir: Annotated[Path, typer.Option(help="Where rank 0 will write.")] = Path(
        "outputs"
    ),
) -> None:
    """Check all hosts before training: one line each, OK or what to do about it.

    Running ranks are asked if there are enough of them; else some are started, and stopped again.
    The exit status is 1 if something must be mended.
    """
    from tutorial_lib.cluster import Cluster

    with Cluster(ranks, profile or None, process_group=False) as running:
        report = running.preflight(str(data_dir or ""), str(checkpoint_dir))
    typer.echo(repr(report))
    if not report.is_ready:
        raise typer.Exit(1)
