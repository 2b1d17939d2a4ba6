"""Between the notebook and its engines."""

from typing import Any

_HOMES = {
    "Cluster": "cluster",
    "Ranks": "ranks",
    "CellError": "errors",
    "ClusterError": "errors",
    "DeadRankError": "errors",
    "MpiError": "errors",
    "StartError": "errors",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for, and nothing before."""
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"tutorial_lib.cluster.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'tutorial_lib.cluster' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
