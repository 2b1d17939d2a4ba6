"""The same report from the ranks of a job of one's own, without a notebook."""

from __future__ import annotations

import argparse
import base64
import pickle
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from tutorial_lib.cluster import preflight
from tutorial_lib.cluster.preflight import Failure
from tutorial_lib.distributed import rendezvous, topology


def everyone_under_mpi(
    seconds: float, function: Callable[..., object], *arguments: object
) -> dict[int, Any]:
    """Call a function here and tell the other ranks, who do the same. Collective.

    Args:
        seconds: For the others to tell what came of it.
        function: To call.
        *arguments: For it; rank 0's count.

    Returns:
        By rank, what the function returned or a ``Failure``; on all ranks.

    Raises:
        TimeoutError: A rank has said nothing in time.
    """
    place = topology.detect()

    def tell(value: object) -> list[Any]:
        text = base64.b64encode(pickle.dumps(value)).decode()
        told = rendezvous.exchange(text, place, None, timedelta(seconds=seconds))
        return [pickle.loads(base64.b64decode(part)) for part in told]

    value: object
    try:
        value = function(*tell(arguments)[0])
    except Exception as error:
        value = Failure(f"{type(error).__name__}: {error}")
    return dict(enumerate(tell(value)))


def main() -> None:
    """Be one of the ranks that examine their hosts; rank 0 prints the report."""
    parser = argparse.ArgumentParser(
        prog="preflight", description=(preflight.__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--data-dir", default="", help="a folder of data that every rank must have")
    parser.add_argument("--checkpoint-dir", default=".", help="where rank 0 will write")
    given = parser.parse_args()
    if topology.launcher() != "mpi":
        sys.exit("preflight: start it by mpiexec or srun, as you start your training")
    data_dir = str(Path(given.data_dir).resolve()) if given.data_dir else ""
    checkpoint_dir = str(Path(given.checkpoint_dir).resolve())
    report = preflight.examine(everyone_under_mpi, data_dir, checkpoint_dir)
    if topology.detect().is_main:
        print(report, flush=True)
    sys.exit(0 if report.is_ready else 1)


if __name__ == "__main__":
    main()
