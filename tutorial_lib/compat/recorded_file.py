"""Files of numbers recorded from CNTK, whose fields are asked for by name."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tutorial_lib.data.errors import DataError

REMEDY = "Give recorded files, with those of all ranks side by side"


class Fields(dict[str, Any]):
    """A JSON object that says which file lacks a field.

    Args:
        path: Of the file.
        content: Of the object.
    """

    def __init__(self, path: Path, content: dict[str, Any]) -> None:
        super().__init__(content)
        self.path = path

    def __missing__(self, key: str) -> Any:
        raise DataError(self.path, f"the field {key!r}", f"only {sorted(self)}", REMEDY)

    def count(self, key: str, least: int = 1) -> int:
        """Return a field that is a whole number.

        Raises:
            DataError: It is missing, something else, or less.
        """
        value = self[key]
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            wanted = f"a whole number, {least} or more"
            raise DataError(self.path, wanted, repr(value)[:60], REMEDY, f"field {key!r}")
        return value

    def rows(self, key: str) -> list[Any]:
        """Return a field that is a list with something in it.

        Raises:
            DataError: It is missing, empty or no list.
        """
        value = self[key]
        if not isinstance(value, list) or not value:
            found = repr(value)[:60]
            raise DataError(self.path, "a list with values", found, REMEDY, f"field {key!r}")
        return value


def read_recorded(path: Path) -> Fields:
    """Read a file.

    Raises:
        DataError: It is missing or no JSON object.
    """
    try:
        content = json.loads(
            path.read_text(encoding="utf-8"), object_hook=lambda found: Fields(path, found)
        )
    except FileNotFoundError:
        raise DataError(path, "a recorded file", "nothing there", REMEDY) from None
    except (OSError, ValueError) as error:
        raise DataError(path, "a recorded JSON file", str(error), REMEDY) from error
    if not isinstance(content, Fields):
        raise DataError(path, "a recorded JSON object", type(content).__name__, REMEDY)
    return content


def read_ranks(path: Path) -> list[Fields]:
    """Read the files of all ranks of a run, of which one is named.

    Raises:
        DataError: One is missing, of another rank, or has another number of steps.
    """
    runs: list[Fields] = []
    for rank in range(read_recorded(path).count("n")):
        name = re.sub(r"_r\d+$", f"_r{rank}", path.stem) + path.suffix
        run = read_recorded(path.with_name(name))
        if run["rank"] != rank:
            raise DataError(run.path, f"rank {rank}", f"rank {run['rank']}", REMEDY)
        steps, first = len(run.rows("steps")), len((runs or [run])[0]["steps"])
        if steps != first:
            raise DataError(run.path, f"{first} steps, as rank 0", f"{steps}", REMEDY)
        runs.append(run)
    return runs
