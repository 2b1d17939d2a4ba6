"""The ipyparallel profiles that come with the tutorial."""

from __future__ import annotations

import os
from pathlib import Path

import tutorial_lib
from tutorial_lib.cluster.errors import ClusterError


def profiles_folder() -> Path:
    """``cluster_profiles/`` of the clone, or its copy inside an installed package."""
    package = Path(tutorial_lib.__file__).parent
    installed = package / "share" / "cluster_profiles"
    return installed if installed.is_dir() else package.parent / "cluster_profiles"


def profile_names() -> list[str]:
    """The names of the profiles that come with the tutorial."""
    found = profiles_folder().glob("profile_*")
    return sorted(path.name.removeprefix("profile_") for path in found)


def profile_folder(profile: str) -> Path:
    """Folder of a profile that comes with the tutorial.

    Args:
        profile: Its name, for example "mpi".

    Raises:
        ClusterError: There is no such profile: the message lists those there are.
    """
    folder = profiles_folder() / f"profile_{profile}"
    if not folder.is_dir():
        raise ClusterError(
            f"no profile {profile!r} in {folder.parent}; there are {', '.join(profile_names())}"
        )
    return folder


def profile_folders(profile: str) -> list[Path]:
    """Where ``ipcluster start`` may have left a running cluster of a profile.

    Args:
        profile: Its name.

    Returns:
        The tutorial's profile, one of the working folder, and IPython's own, where they exist.
    """
    name = f"profile_{profile}"
    ipython = Path(os.environ.get("IPYTHONDIR") or Path.home() / ".ipython")
    candidates = [profiles_folder() / name, Path("cluster_profiles", name), ipython / name]
    return list(dict.fromkeys(path.resolve() for path in candidates if path.is_dir()))
