"""The exercises that a reader has passed: one small file, whatever folder the notebooks are in."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import sys
from pathlib import Path

from filelock import FileLock, Timeout

from tutorial_lib.data.atomic import atomic_write

STATE_VARIABLE = "GAN_TUTORIAL_STATE_DIR"
LOCK_TIMEOUT_S = 2.0


def passed_file() -> Path:
    """Return the file, by the platform's convention; it need not exist.

    It is ``passed.json`` in ``$GAN_TUTORIAL_STATE_DIR``, else in ``$XDG_STATE_HOME/gan-tutorial``,
    else in ``~/.local/state/gan-tutorial``, on macOS ``~/Library/Application Support``'s.
    """
    if own := os.environ.get(STATE_VARIABLE):
        return Path(own) / "passed.json"
    configured = os.environ.get("XDG_STATE_HOME", "")
    default = "Library/Application Support" if sys.platform == "darwin" else ".local/state"
    state = Path(configured) if os.path.isabs(configured) else Path.home() / default
    return state / "gan-tutorial" / "passed.json"


def passed() -> dict[str, str]:
    """Return the exercises passed so far, each with the day of its first PASS.

    A file that is missing, damaged or unreadable counts as none.
    """
    try:
        found = json.loads(passed_file().read_text(encoding="utf-8"))
    except (OSError, ValueError, RuntimeError):  # RuntimeError: there is no home folder
        return {}
    entries = found.items() if isinstance(found, dict) else ()
    return {name: day for name, day in entries if isinstance(day, str)}


def record_pass(name: str) -> None:
    """Note that an exercise was passed. It never raises: an exercise is not about files.

    Args:
        name: the exercise, such as ``"02.1"``.

    **Distributed:** not collective, and safe in several notebooks at once.
    """
    with contextlib.suppress(OSError, RuntimeError, Timeout):
        path = passed_file()
        if name in passed():
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_suffix(".lock"), timeout=LOCK_TIMEOUT_S):
            entries = {**passed(), name: datetime.date.today().isoformat()}
            with atomic_write(path, "w", encoding="utf-8") as file:
                json.dump(dict(sorted(entries.items())), file, indent=2)


def forget_passes() -> None:
    """Start over: no exercise is passed.

    Raises:
        OSError: the file cannot be removed.
    """
    passed_file().unlink(missing_ok=True)
