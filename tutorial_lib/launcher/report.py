"""What a batch run tells at its end: where the results are, and what went wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tutorial_lib.launcher.batch import BatchResult, Failure

KINDS = {".ipynb": "Notebooks", ".html": "HTML pages", ".json": "Numbers", ".png": "Pictures"}
OTHERS = "Other files"


def report(result: BatchResult, output_dir: Path) -> Iterator[str]:
    """Yield the lines that end a batch run.

    Args:
        result: what the run did.
        output_dir: where its files are.
    """
    folder = output_dir.resolve()
    kinds: dict[str, list[str]] = {kind: [] for kind in [*KINDS.values(), OTHERS]}
    for path in result.files:
        kinds[KINDS.get(path.suffix, OTHERS)].append(str(path.relative_to(folder)))
    if result.files:
        yield f"\nThe results are in {folder}"
    for kind, names in kinds.items():
        if names:
            yield f"  {kind:11}  {', '.join(names)}"
    for name, failure in result.failures.items():
        yield from _explain(name, failure)


def _explain(name: str, failure: Failure) -> Iterator[str]:
    place = "" if failure.cell is None else f" in cell [{failure.cell}]"
    yield f"\n{name} failed{place}: {failure.error}"
    for line in failure.source.splitlines():
        yield f"    {line}"
    yield f"As far as it came, with the traceback: {failure.notebook}"
