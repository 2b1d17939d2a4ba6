"""Run a script again, on ranks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

MPIEXEC = Path(sys.executable).with_name("mpiexec")


def run_under_mpiexec(script: str, ranks: int, *arguments: str) -> None:
    """Run a script on so many ranks of one thread each."""
    command = [str(MPIEXEC), "-n", str(ranks), sys.executable, script, *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(command, check=True, env=environment)
