"""``gan-tutorial data``: the data sets from the shell."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

data = typer.Typer(
    no_args_is_help=True,
    help=(
        "The data sets: see them, fetch them, check a folder of your own.\n\n"
        "MNIST comes with the package, so none of this is needed for the walkthrough."
    ),
)


@data.command("list")
def list_command() -> None:
    """List the data sets; those of the package are verified."""
    from tutorial_lib.launcher.data_sets import list_data

    for line in list_data():
        typer.echo(line)


@data.command("download", epilog="Example: gan-tutorial data download cifar-10")
def download_command(
    name: Annotated[Literal["fashion-mnist", "cifar-10"], typer.Argument(help="Which.")],
) -> None:
    """Fetch a data set into the cache, and verify it. What is there and intact stays.

    A transfer that broke off is continued the next time.
    """
    from tutorial_lib.launcher.data_sets import download

    typer.echo(download(name))


@data.command("verify", epilog="Then: gan-tutorial run --data-dir DIR")
def verify_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder with MNIST or CIFAR-10.")],
) -> None:
    """Read a folder of your own as a chapter would, and say what is in it."""
    from tutorial_lib.launcher.data_sets import verify

    typer.echo(verify(folder))


@data.command("install", epilog="Example: gan-tutorial data install --format ctf --out mnist")
def install_command(
    out: Annotated[Path, typer.Option(help="The folder to write to; made if it is missing.")],
    format: Annotated[
        Literal["ctf", "idx"],
        typer.Option(help="ctf: CNTK's two text files; idx: the four original ones."),
    ] = "ctf",
) -> None:
    """Write the bundled MNIST into a folder. Files that are there and intact stay."""
    from tutorial_lib.data.install import install

    install(format, out, typer.echo)
