"""The program that carries messages between notebooks and engines: ipyparallel's controller.

    python -m tutorial_lib.cluster.controller [options of ipcontroller]

It is ipcontroller with one difference: it and its helper processes end when the cluster's
supervisor does, and its helpers end when it does.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from ipyparallel.controller.app import IPController

from tutorial_lib.cluster import lifeline, process
from tutorial_lib.cluster.runtime import FOLDER_VARIABLE, ClusterFolder

GRACE_S = 2.0


def main() -> None:
    """Run the controller until it is told to stop."""
    os.register_at_fork(after_in_child=process.die_with_parent)
    if folder := os.environ.get(FOLDER_VARIABLE):
        lifeline.watch(ClusterFolder(Path(folder)).lifeline, _end)
    IPController.launch_instance()


def _end() -> None:
    lifeline.end_within(GRACE_S, 1)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
