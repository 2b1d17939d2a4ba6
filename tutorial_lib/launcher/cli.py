"""The ``gan-tutorial`` command. Each command imports what it needs only when it runs."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import tutorial_lib
from tutorial_lib.cluster.errors import ClusterError
from tutorial_lib.data.errors import DataError
from tutorial_lib.launcher.cluster_commands import cluster
from tutorial_lib.launcher.data_commands import data
from tutorial_lib.launcher.errors import CommandError

INTERRUPTED = 128 + signal.SIGINT


class Commands(TyperGroup):
    """The commands, with a person's mistake told in one line on stderr instead of a traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run the chosen command, and end with the exit status that its outcome deserves."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            typer.echo("gan-tutorial: interrupted", err=True)
            raise typer.Exit(INTERRUPTED) from None
        except (CommandError, ClusterError, DataError) as error:
            typer.echo(f"gan-tutorial: {error}", err=True)
            raise typer.Exit(1) from error


app = typer.Typer(
    name="gan-tutorial",
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help=(
        "Real MPI ranks train a GAN in front of you.\n\n"
        "Begin with [bold]gan-tutorial doctor[/bold] (is this machine ready?), then "
        "[bold]gan-tutorial lab[/bold] (read and run the notebooks in JupyterLab), or "
        "[bold]gan-tutorial run[/bold] (run chapters 00 to 05 without a browser).\n\n"
        "A [bold]rank[/bold] is one of several equal processes that share the work; MPI starts "
        "them and carries their messages. An [bold]engine[/bold] is a rank that takes its orders "
        "from a notebook. A [bold]chapter[/bold] is a notebook, named by its number."
    ),
    epilog=(
        "Exit status: 0 it worked, 1 it did not, 2 the command line is wrong, 130 interrupted.\n\n"
        "Each command explains itself too: gan-tutorial run --help. "
        "To complete commands with the Tab key: gan-tutorial --install-completion."
    ),
)


def main() -> None:
    """Run the command line."""
    _find_programs_beside_python()
    app()


def _find_programs_beside_python() -> None:
    """Let notebooks find mpiexec and the rest, whether or not the environment was activated."""
    scripts = str(Path(sys.executable).parent)
    path = os.environ.get("PATH", "").split(os.pathsep)
    if path[0] != scripts:
        os.environ["PATH"] = os.pathsep.join([scripts, *path])


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gan-tutorial {tutorial_lib.__version__}")
        raise typer.Exit


@app.callback()
def gan_tutorial(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Hold what is common to all commands; its help text is the app's."""


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    epilog="Example: gan-tutorial lab ~/gan --no-browser --port 8890",
)
def lab(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[DIR] [JUPYTERLAB OPTIONS]...",
            help="A folder for your own copies, and options passed on to JupyterLab.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Open the notebooks in JupyterLab.

    With DIR, notebooks and cluster profiles are copied there first. A file of yours is never
    overwritten: what you changed stays, what you did not change is brought up to date.

    Without DIR, a clone's own notebooks are opened; outside a clone, copies in ./gan-tutorial.
    """
    from tutorial_lib.launcher.lab import open_lab, prepare

    given = list(arguments or [])
    folder = Path(given.pop(0)) if given and not given[0].startswith("-") else None
    target, lines = prepare(folder)
    for line in lines:
        typer.echo(line)
    open_lab(target, given)


@app.command(epilog="Example: gan-tutorial run --chapters 3-5 --ranks 4 --minibatches 300")
def run(
    chapters: Annotated[str, typer.Option(help="Which: 00-05, or 4, or 1,3-5, or all.")] = "00-05",
    output_dir: Annotated[
        Path, typer.Option("--output-dir", "-o", help="Where the results go.")
    ] = Path("outputs"),
    ranks: Annotated[
        int | None, typer.Option("--ranks", "-n", min=1, help="MPI ranks (num_engines).")
    ] = None,
    minibatches: Annotated[
        int | None, typer.Option(min=1, help="Generator updates where a chapter trains.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of all randomness.")] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            exists=True, file_okay=False, help="Folder with MNIST files, not the bundled ones."
        ),
    ] = None,
    force: Annotated[bool, typer.Option(help="Run also what is up to date.")] = False,
) -> None:
    """Run chapters from first to last cell, and keep notebooks, HTML, numbers and pictures.

    What is up to date is skipped: same notebooks, library, packages and parameters. If a chapter
    fails, the others still run; then the exit status is 1.
    """
    from tutorial_lib.launcher.batch import run_notebooks
    from tutorial_lib.launcher.report import report
    from tutorial_lib.launcher.resources import all_chapters, select_chapters

    chosen = select_chapters(chapters, all_chapters())
    parameters: dict[str, Any] = {
        "num_engines": ranks,
        "minibatches": minibatches,
        "seed": seed,
        "data_dir": str(data_dir.resolve()) if data_dir else None,
    }
    given = {name: value for name, value in parameters.items() if value is not None}
    result = run_notebooks(chosen, output_dir, given, force, typer.echo)
    for line in report(result, output_dir):
        typer.echo(line)
    if result.failures:
        raise typer.Exit(1)


@app.command(
    "sample", epilog="Train one first: python -m tutorial_lib.training.basic_gan --save FILE"
)
def sample_command(
    file: Annotated[Path, typer.Argument(help="A generator that training saved.")],
    out: Annotated[Path, typer.Option(help="The picture to write (PNG).")],
    rows: Annotated[int, typer.Option(min=1, help="Rows of images.")] = 6,
    cols: Annotated[int, typer.Option(min=1, help="Columns of images.")] = 6,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the noise.")] = 36,
) -> None:
    """Draw digits from a saved generator."""
    from tutorial_lib.launcher.sample import sample

    typer.echo(sample(file, out, rows, cols, seed))


app.add_typer(cluster, name="cluster")
app.add_typer(data, name="data")


@app.command("progress", epilog="Exercises are at the end of each chapter, with their checks.")
def progress_command(
    reset: Annotated[bool, typer.Option("--reset", help="Forget all of it: start over.")] = False,
) -> None:
    """Show which exercises you have passed, and which comes next."""
    from tutorial_lib.exercises.passed import forget_passes, passed, passed_file
    from tutorial_lib.launcher.progress import progress
    from tutorial_lib.launcher.resources import all_chapters

    if reset:
        try:
            forget_passes()
        except OSError as error:
            raise CommandError(f"cannot remove {passed_file()}: {error.strerror}") from error
    for line in progress(all_chapters(), passed()):
        typer.echo(line)


@app.command(
    epilog="Examples: gan-tutorial bench allreduce training_step; "
    "gan-tutorial bench scaling --ranks 1 2 4",
    context_settings={"ignore_unknown_options": True},
)
def bench(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...",
            help="Which ones; all if none is named. Options after a single name go to it.",
        ),
    ] = None,
    list_them: Annotated[
        bool, typer.Option("--list", help="Say what there is to measure.")
    ] = False,
) -> None:
    """Measure this project, and what you might use instead, on this machine.

    Each measurement takes its contestants in turn, prints medians and ratios, and writes them with
    the facts about the machine to benchmarks/results/. Keep the machine quiet meanwhile.
    """
    from tutorial_lib.launcher.bench import about, benchmarks, run_benchmarks

    if list_them:
        for name, script in benchmarks().items():
            typer.echo(f"{name:16} {about(script)}")
    else:
        run_benchmarks(words or [], typer.echo)


@app.command()
def doctor() -> None:
    """Check this machine: one line each, OK or what to do about it.

    The exit status is 1 if something must be mended before the walkthrough can run.
    """
    from tutorial_lib.display.findings import Verdict
    from tutorial_lib.launcher.doctor import examine

    verdicts = []
    for finding in examine():
        typer.echo(str(finding))
        verdicts.append(finding.verdict)
    if Verdict.FIX in verdicts:
        raise typer.Exit(1)


if __name__ == "__main__":
    main()
