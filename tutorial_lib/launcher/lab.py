"""JupyterLab on the notebooks: the clone's own, or a reader's working copies."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tutorial_lib.cluster.profiles import profiles_folder
from tutorial_lib.data.atomic import atomic_write
from tutorial_lib.launcher.errors import CommandError
from tutorial_lib.launcher.resources import all_chapters, clone, notebooks_folder
from tutorial_lib.launcher.tiles import FOLDER_VARIABLE, write_tiles

DEFAULT_COPY = Path("gan-tutorial")
LEDGER = ".copied.json"
# What running leaves beside the files, keys among it.
LEFTOVERS = {"__pycache__", ".ipynb_checkpoints", "db", "log", "pid", "security"}


def prepare(folder: Path | None) -> tuple[Path, list[str]]:
    """Find or make the folder to open.

    Args:
        folder: where the reader's copies go; None opens a clone's own notebooks, and outside a
            clone makes ``gan-tutorial`` in the current folder.

    Returns:
        The folder that JupyterLab is to show, and lines that tell what was copied or kept.

    Raises:
        CommandError: the copies cannot be written there; name another folder.
    """
    own = clone()
    target = (folder or own or DEFAULT_COPY).expanduser().resolve()
    if target == own:
        return own, []
    try:
        return target, copy_materials(target)
    except OSError as error:
        raise CommandError(f"cannot write to {target}: {error.strerror}") from error


def copy_materials(target: Path) -> list[str]:
    """Copy notebooks and cluster profiles into a folder, without touching a reader's work.

    A file that the reader changed since it was copied stays as it is; unchanged ones are brought
    up to date.

    Args:
        target: the folder, made if missing.

    Returns:
        Lines that tell what was copied and what was kept.
    """
    ledger_path = target / LEDGER
    ledger: dict[str, str] = {}
    with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
        ledger = json.loads(ledger_path.read_text(encoding="utf-8"))
    copied = 0
    kept = []
    for name, source in _materials():
        content = source.read_bytes()
        path = target / name
        there = _digest(path.read_bytes()) if path.is_file() else None
        if there == _digest(content):
            pass
        elif there is None or there == ledger.get(name):
            with atomic_write(path) as file:
                file.write(content)
            copied += 1
        else:
            # What the ledger says stays, so that the file counts as changed at the next time too.
            kept.append(name)
            continue
        ledger[name] = _digest(content)
    with atomic_write(ledger_path, "w", encoding="utf-8") as file:
        json.dump(ledger, file, indent=2)
    lines = [f"copied {copied} files to {target}"] if copied else []
    return lines + [
        f"kept your {name}, which you changed; rename it to get the original" for name in kept
    ]


def open_lab(folder: Path, flags: Sequence[str]) -> None:
    """Run JupyterLab in this process, until it ends.

    Its launcher gets the tutorial's tiles, from a temporary folder that ends with it: nothing is
    written to the reader's home folder.

    Args:
        folder: what JupyterLab shows; its ``notebooks`` are opened at the first chapter.
        flags: passed on to JupyterLab.
    """
    from jupyterlab.labapp import LabApp

    first = all_chapters(folder / "notebooks")[0]
    arguments = [
        f"--ServerApp.root_dir={folder}",
        f"--LabApp.default_url=/lab/tree/notebooks/{first.path.name}",
        *flags,
    ]
    if os.geteuid() == 0 and "--allow-root" not in flags:
        arguments.append("--allow-root")  # as in a container, where there is nobody else to be
    with tempfile.TemporaryDirectory(prefix="gan-tutorial-") as tiles:
        write_tiles(Path(tiles), folder)
        os.environ[FOLDER_VARIABLE] = tiles
        LabApp.launch_instance(argv=arguments)


def _materials() -> Iterator[tuple[str, Path]]:
    for root in (notebooks_folder(), profiles_folder()):
        for path in sorted(root.rglob("*")):
            inside = path.relative_to(root)
            if path.is_file() and not LEFTOVERS.intersection(inside.parts):
                yield str(root.name / inside), path


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
