"""Whether all ranks run the same programs: checked, not assumed."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Sequence

import torch.distributed as dist

from tutorial_lib.distributed.session import Session

PACKAGES = ("gan-tutorial", "torch", "numpy", "mpi4py")


def own_versions(packages: Sequence[str] = PACKAGES) -> dict[str, str]:
    """Return the versions of Python and of packages in this process.

    Args:
        packages: Names as they are installed under.

    Returns:
        Version by name; "missing" for what isn't installed.
    """
    found = {"Python": platform.python_version()}
    for name in packages:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "missing"
    return found


def check_versions(ranks: Session, packages: Sequence[str] = PACKAGES) -> dict[str, str]:
    """Make sure that all ranks, on whatever hosts, have the same versions.

    Different ones can give different numbers, or collectives that don't fit together and hang.

    Args:
        ranks: The session.
        packages: Names as they are installed under.

    Returns:
        The versions.

    Raises:
        RuntimeError: They differ, on all ranks; the message says which ranks and hosts have what.
            Install the same versions everywhere.

    **Distributed:** collective.
    """
    own = own_versions(packages)
    everyone = [(ranks.topology.host, own)] * ranks.world_size
    if ranks.world_size > 1:
        dist.all_gather_object(everyone, (ranks.topology.host, own))
    if problem := differences(everyone):
        raise RuntimeError(
            f"the ranks run different versions; install the same everywhere.\n{problem}"
        )
    return own


def differences(everyone: Sequence[tuple[str, dict[str, str]]]) -> str:
    """Say which versions differ, a line for each package; an empty text when none do.

    Args:
        everyone: Host and versions of each rank, in rank order.
    """
    lines = []
    for name in everyone[0][1]:
        versions = [found[name] for _, found in everyone]
        if len(set(versions)) > 1:
            told = [
                f"{version} on rank {rank} ({host})"
                for rank, ((host, _), version) in enumerate(zip(everyone, versions, strict=True))
            ]
            lines.append(f"{name}: {', '.join(told)}")
    return "\n".join(lines)
