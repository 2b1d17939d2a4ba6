"""Which MPI starts the engines: its family, its version, and the flags each needs.

The ``mpiexec`` beside the interpreter wins over one on the PATH, because mpi4py loads the MPI
library of the interpreter's environment first, and both must belong to the same MPI.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Literal

from tutorial_lib.cluster.errors import MpiError

Family = Literal["MPICH", "Open MPI", "Intel MPI", "unknown MPI"]

MPIEXEC_VARIABLE = "GAN_TUTORIAL_MPIEXEC"
VERSION_TIMEOUT_S = 20.0

_OPEN_MPI = re.compile(r"\((?:OpenRTE|Open MPI)\)\s+v?(\d+)\.(\d+)(?:\.(\d+))?")
_INTEL = re.compile(r"Intel\(R\) MPI Library.*?Version\s+(\d+)(?:\.(\d+))?", re.DOTALL)
_HYDRA = re.compile(r"HYDRA build details:.*?Version:\s+(\d+)\.(\d+)(?:\.(\d+))?", re.DOTALL)


@dataclass(frozen=True)
class MpiFlavour:
    """One MPI launcher.

    Attributes:
        mpiexec: Path of the launcher.
        family: Whose it is.
        version: Its numbers, for example (5, 0, 2); empty when unknown.
    """

    mpiexec: str
    family: Family
    version: tuple[int, ...]

    def __str__(self) -> str:
        return " ".join([self.family, ".".join(map(str, self.version))]).strip()

    def arguments(self, is_root: bool | None = None) -> list[str]:
        """Flags that let any number of ranks run anywhere on this host, unbound.

        Args:
            is_root: Whether the user is root; None looks.

        Returns:
            Arguments between ``mpiexec`` and the program, without ``-n``.
        """
        if is_root is None:
            is_root = hasattr(os, "geteuid") and os.geteuid() == 0
        match self.family:
            case "MPICH":
                return ["-bind-to", "none"]
            case "Open MPI":
                root = ["--allow-run-as-root"] if is_root else []
                major = self.version[0] if self.version else 5
                # Open MPI 5 knows --oversubscribe as a qualifier of --map-by only.
                oversubscribe = (
                    ["--map-by", ":OVERSUBSCRIBE"] if major >= 5 else ["--oversubscribe"]
                )
                return [*root, *oversubscribe, "--bind-to", "none"]
            case _:
                return []

    @property
    def environment(self) -> dict[str, str]:
        """Variables that say what this MPI has no flag for."""
        if self.family == "Intel MPI":
            return {"I_MPI_PIN": "0"}
        return {}

    def command(self, n: int, *program: str) -> list[str]:
        """The command line that runs a program on n ranks."""
        return [self.mpiexec, "-n", str(n), *self.arguments(), *program]

    @cached_property
    def is_beside_interpreter(self) -> bool:
        """Whether it belongs to the environment of this interpreter."""
        return any(Path(self.mpiexec).parent == folder for folder in _own_folders())


def parse_version(text: str) -> tuple[Family, tuple[int, ...]]:
    """Read family and version from what ``mpiexec --version`` prints.

    Args:
        text: Its output.

    Returns:
        The family and the numbers of the version; ("unknown MPI", ()) when it is neither
        MPICH, Open MPI nor Intel MPI.
    """
    patterns: list[tuple[Family, re.Pattern[str]]] = [
        ("Open MPI", _OPEN_MPI),
        ("Intel MPI", _INTEL),
        ("MPICH", _HYDRA),
    ]
    for family, pattern in patterns:
        if match := pattern.search(text):
            return family, tuple(int(number) for number in match.groups() if number)
    return "unknown MPI", ()


def find_mpiexec() -> str:
    """Path of the launcher: the user's choice, else beside the interpreter, else on the PATH.

    Raises:
        MpiError: There is none: install one, for example with ``pip install mpich``.
    """
    if chosen := os.environ.get(MPIEXEC_VARIABLE):
        if found := shutil.which(chosen):
            return found
        raise MpiError(f"{MPIEXEC_VARIABLE}={chosen} is not a program: correct or unset it")
    for folder in _own_folders():
        for name in ("mpiexec", "mpiexec.hydra", "mpirun"):
            if found := shutil.which(name, path=str(folder)):
                return found
    if found := shutil.which("mpiexec") or shutil.which("mpirun"):
        return found
    raise MpiError(
        f"no mpiexec beside {sys.executable} nor on the PATH: "
        "install an MPI, for example with `pip install mpich`"
    )


@lru_cache
def flavour_of(mpiexec: str) -> MpiFlavour:
    """Ask a launcher what it is.

    Args:
        mpiexec: Its path.

    Raises:
        MpiError: It does not run: see its message.
    """
    try:
        run = subprocess.run(
            [mpiexec, "--version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=VERSION_TIMEOUT_S,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise MpiError(f"{mpiexec} --version does not run: {error}") from error
    family, version = parse_version(run.stdout)
    if family == "unknown MPI" and run.returncode != 0:
        raise MpiError(f"{mpiexec} --version fails ({run.returncode}): {run.stdout.strip()[:500]}")
    return MpiFlavour(mpiexec, family, version)


def detect() -> MpiFlavour:
    """The MPI that starts the engines of this interpreter.

    Raises:
        MpiError: There is none, or it does not run.
    """
    return flavour_of(find_mpiexec())


def library_name(text: str) -> str:
    """The name and version of an MPI library, from what it says of itself.

    Args:
        text: Of MPI_Get_library_version.
    """
    first = text.splitlines()[0].split(",")[0].split(" package")[0]
    return " ".join(first.replace("Version:", "").replace(" v", " ").split())


def are_foreign(mpiexec: str, library: str) -> bool:
    """Whether a launcher and a library are of MPIs that can't work together.

    Args:
        mpiexec: Name and version of the launcher's MPI.
        library: Name and version of mpi4py's MPI library.

    Returns:
        True when one is Open MPI and the other, known too, is not; MPICH and those built on it
        start each other.
    """
    if not mpiexec or not library or mpiexec.startswith("unknown"):
        return False
    return mpiexec.startswith("Open MPI") != library.startswith("Open MPI")


def _own_folders() -> Iterator[Path]:
    """Where programs of this interpreter's environment lie; symbolic links stay as they are."""
    yield Path(sys.executable).parent
    yield Path(sysconfig.get_path("scripts"))
