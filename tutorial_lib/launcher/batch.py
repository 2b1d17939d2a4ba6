"""The walkthrough without a browser: chapters run from first to last cell, results kept."""

from __future__ import annotations

import ast
import contextlib
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from filelock import FileLock, Timeout

from tutorial_lib.data.atomic import atomic_write
from tutorial_lib.launcher.errors import CommandError
from tutorial_lib.launcher.freshness import Ledger, fingerprint, snapshot
from tutorial_lib.launcher.resources import Chapter

Say = Callable[[str], None]


@dataclass(frozen=True)
class Failure:
    """Why a chapter stopped.

    Args:
        cell: the number that Jupyter shows beside the cell, or None when the kernel itself died.
        source: the cell's code.
        error: the exception's name and message.
        notebook: the notebook as far as it came, error included.
    """

    cell: int | None
    source: str
    error: str
    notebook: Path


@dataclass(frozen=True)
class BatchResult:
    """What a batch run did.

    Args:
        files: what the chapters that are done made, this time or before.
        ran: the chapters that ran to their end this time.
        failures: chapter name to failure.
    """

    files: list[Path]
    ran: list[str]
    failures: dict[str, Failure] = field(default_factory=dict)


def run_notebooks(
    chapters: Sequence[Chapter],
    output_dir: Path,
    parameters: Mapping[str, Any] | None = None,
    force: bool = False,
    say: Say = print,
) -> BatchResult:
    """Run chapters in order and keep each as a notebook with outputs and as HTML.

    A chapter is skipped if its results are there and nothing that they depend on has changed.
    When one fails, the others still run, because each chapter can run alone.

    Args:
        chapters: what to run.
        output_dir: where results go, made if missing; the notebooks get it as ``output_dir``.
        parameters: values for the notebooks' parameter cells. A chapter without a parameter of
            that name is run without it.
        force: run also what is up to date.
        say: called with each line of progress.

    Returns:
        What ran, what failed, and the files there are now.

    Raises:
        CommandError: no chapter has a parameter of that name, or another batch run is at work
            in ``output_dir``: wait for it, or name another folder.
        KeyboardInterrupt: interrupted; the chapter under way leaves nothing behind.
    """
    output_dir = output_dir.resolve()
    settings = _settings(chapters, {**(parameters or {}), "output_dir": str(output_dir)})
    width = max(len(chapter.name) for chapter in chapters)
    result = BatchResult(files=[], ran=[])
    with _quiet_interrupts(), _only_one(output_dir):
        ledger = Ledger(output_dir)
        for number, chapter in enumerate(chapters, 1):
            mark = fingerprint(chapter, settings[chapter.name])
            if not force and ledger.is_fresh(chapter, mark):
                say(f"{chapter.name:{width}}  up to date")
                continue
            started_s = time.monotonic()
            before = snapshot(output_dir)
            older = ledger.forget(chapter)
            place = f"{chapter.name:{width}}  chapter {number} of {len(chapters)}"
            failure = _run_one(chapter, output_dir, settings[chapter.name], place)
            took_s = time.monotonic() - started_s
            if failure:
                result.failures[chapter.name] = failure
                say(f"{chapter.name:{width}}  FAILED after {took_s:.0f} s")
                continue
            after = snapshot(output_dir)
            made = [n for n in after if n in older or after[n] != before.get(n)]
            ledger.record(chapter, mark, made)
            result.ran.append(chapter.name)
            say(f"{chapter.name:{width}}  done in {took_s:.0f} s")
        result.files.extend(ledger.files(chapters))
    return result


def _settings(
    chapters: Sequence[Chapter], parameters: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Give each chapter those parameters that it declares."""
    declared = {c.name: declared_parameters(c) for c in chapters}
    known = set().union(*declared.values()) | {"output_dir"}
    for name in parameters:
        if name not in known:
            raise CommandError(
                f"no chosen chapter has a parameter {name!r}; they have {', '.join(sorted(known))}"
            )
    return {
        c.name: {k: v for k, v in parameters.items() if k in declared[c.name]} for c in chapters
    }


def declared_parameters(chapter: Chapter) -> set[str]:
    """Return the names that a chapter's parameters cell sets."""
    import nbformat

    notebook = nbformat.read(chapter.path, as_version=4)
    code = [c.source for c in notebook.cells if "parameters" in c.metadata.get("tags", [])]
    statements = ast.parse("\n".join(code)).body
    targets = [t for s in statements if isinstance(s, ast.Assign) for t in s.targets]
    return {target.id for target in targets if isinstance(target, ast.Name)}


@contextlib.contextmanager
def _quiet_interrupts() -> Iterator[None]:
    """Make Ctrl-C and SIGTERM tidy up, without what the libraries log of their broken calls."""
    if threading.current_thread() is not threading.main_thread():
        yield  # where Python lets nobody handle signals
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        logging.disable()
        raise KeyboardInterrupt

    signals = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) != signal.SIG_IGN]
    before = {number: signal.signal(number, interrupt) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _only_one(output_dir: Path) -> Iterator[None]:
    lock = FileLock(output_dir / ".lock", timeout=0)
    try:
        output_dir.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout as error:
        raise CommandError(
            f"another run is writing to {output_dir}: wait for it, or use --output-dir"
        ) from error
    except OSError as error:
        raise CommandError(f"cannot write to {output_dir}: {error.strerror}") from error
    try:
        yield
    finally:
        lock.release()


def _run_one(
    chapter: Chapter, output_dir: Path, parameters: dict[str, Any], place: str
) -> Failure | None:
    from nbclient.exceptions import DeadKernelError
    from papermill.exceptions import PapermillExecutionError
    from papermill.execute import execute_notebook

    partial = output_dir / f"{chapter.name}.partial.ipynb"
    failed = output_dir / f"{chapter.name}.failed.ipynb"
    bar = {
        "desc": place,
        "bar_format": "{desc}  |{bar:20}| cell {n_fmt} of {total_fmt}, {elapsed}",
        "leave": False,
        "disable": not sys.stderr.isatty(),
    }
    try:
        execute_notebook(
            chapter.path,
            partial,
            parameters=parameters,
            kernel_name="python3",
            language="python",
            progress_bar=bar,
            cwd=chapter.path.parent,
            extra_arguments=["--log-level=CRITICAL"],  # no advice about kernels between our lines
        )
    except (PapermillExecutionError, DeadKernelError) as error:
        partial.replace(failed)
        if isinstance(error, DeadKernelError):
            return Failure(None, "", "the kernel died (out of memory?)", failed)
        return Failure(error.exec_count, error.source, f"{error.ename}: {error.evalue}", failed)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    failed.unlink(missing_ok=True)
    done = partial.replace(output_dir / f"{chapter.name}.ipynb")
    write_html(done)
    return None


def write_html(notebook: Path) -> Path:
    """Write a notebook's HTML page, pictures inside, beside it.

    Args:
        notebook: an executed notebook.

    Returns:
        The page.
    """
    from nbconvert import HTMLExporter

    page, _ = HTMLExporter().from_filename(str(notebook))
    path = notebook.with_suffix(".html")
    with atomic_write(path, "w", encoding="utf-8") as file:
        file.write(page)
    return path
