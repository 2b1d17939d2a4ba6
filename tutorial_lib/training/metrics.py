"""One JSON file of figures per run: what a batch run leaves for machines to read."""

import json
import os
from pathlib import Path
from typing import Any

from filelock import FileLock

from tutorial_lib.data.atomic import atomic_write

LOCK_TIMEOUT_S = 30.0


def record_metrics(
    output_dir: str | os.PathLike[str], chapter: str, **values: float | int | str | list[float]
) -> Path:
    """Set a chapter's figures in ``output_dir/metrics.json`` and keep the other chapters'.

    Args:
        output_dir: The folder, made if it's missing.
        chapter: Such as "04"; its older figures are replaced.
        **values: Name and figure.

    Returns:
        The file.

    Raises:
        filelock.Timeout: Another process has held ``metrics.json.lock`` for 30 s: end it.

    **Distributed:** not collective; call it on rank 0 or in the notebook. Several processes may
    call it at once.
    """
    path = Path(output_dir) / "metrics.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(".metrics.json.lock"), timeout=LOCK_TIMEOUT_S):
        metrics: dict[str, Any] = {}
        if path.exists():
            metrics = json.loads(path.read_text(encoding="utf-8"))
        metrics[chapter] = values
        with atomic_write(path, "w", encoding="utf-8") as file:
            json.dump(dict(sorted(metrics.items())), file, indent=2)
            file.write("\n")
    return path
