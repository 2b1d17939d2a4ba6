"""Run the measurements in ``benchmarks/`` and keep what they print."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tutorial_lib.data.atomic import atomic_write
from tutorial_lib.launcher.errors import CommandError
from tutorial_lib.launcher.resources import clone


def benchmarks() -> dict[str, Path]:
    """Return the measurements by name.

    Raises:
        CommandError: The package was installed without them: clone the repository.
    """
    root = clone()
    if root is None:
        raise CommandError("the benchmarks come with a clone of the repository: run this in one")
    return {path.stem: path for path in sorted((root / "benchmarks").glob("*.py"))}


def about(path: Path) -> str:
    """Return what a measurement is for: the first line of its docstring."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or path.stem
    return text.splitlines()[0].rstrip(".")


def run_benchmarks(words: Sequence[str], say: Callable[[str], None]) -> list[Path]:
    """Run measurements one after another, each with its default arguments.

    A single one may be given options of its own, such as ``scaling --ranks 1 2 4``.

    What one prints is shown, and becomes ``benchmarks/results/NAME.md`` together with the date and
    the facts about the machine.

    Args:
        words: Names of those to run, none for all; or one name, then its options.
        say: Shows a line.

    Returns:
        The files written.

    Raises:
        CommandError: There is no measurement of a name, there are options for not just one, or
            one failed; what the earlier ones found is kept.
    """
    scripts = benchmarks()
    first_option = next((i for i, word in enumerate(words) if word.startswith("-")), len(words))
    names, options = words[:first_option], words[first_option:]
    if options and len(names) != 1:
        raise CommandError(f"{options[0]}: options go to one benchmark; name it before them")
    unknown = sorted(set(names) - set(scripts))
    if unknown:
        raise CommandError(f"no benchmark {', '.join(unknown)}; there are {', '.join(scripts)}")
    return [_run(scripts[name], say, options) for name in names or scripts]


def _run(script: Path, say: Callable[[str], None], options: Sequence[str]) -> Path:
    facts = _output([script.parent / "measuring" / "facts.py"], lambda _: None)
    title = about(script)
    say(f"== {script.stem}: {title}")
    found = _output([script, *options], say)
    path = script.parent / "results" / f"{script.stem}.md"
    with atomic_write(path, "w") as file:
        file.write(f"# {title}\n\n{found.strip()}\n\n{facts.strip()}\n")
    say(f"-> {path}")
    return path


def _output(arguments: Sequence[Path | str], say: Callable[[str], None]) -> str:
    """Run a script of ours; its errors and its progress go to this process's stderr."""
    command = [sys.executable, *map(str, arguments)]
    lines = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            for line in process.stdout or ():
                say(line.rstrip("\n"))
                lines.append(line)
        except BaseException:
            process.terminate()
            raise
    if process.returncode:
        raise CommandError(f"{Path(arguments[0]).name} failed (exit status {process.returncode})")
    return "".join(lines)
