"""The folders of ranks whose cluster's own folder may be on another host.

Each rank of a cluster of several hosts has one, ``away-<cluster>-<rank>-<random>`` in the runtime
folder of its host, as the cluster has one on the host of its supervisor. Its guard holds it.
"""

from __future__ import annotations

import contextlib
import socket

import psutil

from tutorial_lib.cluster import runtime
from tutorial_lib.cluster.runtime import FOLDER_VARIABLE, ClusterFolder


def create(cluster: str, rank: int) -> ClusterFolder:
    """Make the folder of a rank.

    Args:
        cluster: Name of the cluster's folder.
        rank: The rank.
    """
    folder = runtime.create(f"away-{cluster}-{rank}")
    runtime.write_json(folder.path / runtime.AWAY_FILE, {"host": socket.gethostname()})
    return folder


def remove_all(cluster: ClusterFolder) -> None:
    """Remove the folders that a cluster's ranks had on this host.

    Args:
        cluster: The cluster's own folder.
    """
    for path in cluster.path.parent.glob(f"away-{cluster.path.name}-*"):
        ClusterFolder(path).remove()


def processes(folder: ClusterFolder) -> list[psutil.Process]:
    """The programs that a rank has started, and that live: their environment names its folder.

    Args:
        folder: The rank's own.
    """
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(FOLDER_VARIABLE) == str(folder.path):
                found.append(process)
    return found
