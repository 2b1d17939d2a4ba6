"""Between the notebook and its ranks: start them, run cells on them, leave nothing behind."""

from importlib import import_module
from typing import Any

_HOMES = {
    "BusyRankError": "errors",
    "CellError": "errors",
    "Cluster": "cluster",
    "ClusterError": "errors",
    "ClusterStatus": "service",
    "DeadRankError": "errors",
    "HostsError": "errors",
    "MpiError": "errors",
    "Ranks": "ranks",
    "StartError": "errors",
    "cluster_status": "service",
    "start_cluster": "service",
    "stop_cluster": "service",
    "where": "service",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for, and nothing before."""
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
