"""What a figure depends on beside the code: the machine and the versions."""

from __future__ import annotations

import os
import platform
import re
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

PACKAGES = ("mpi4py", "ipyparallel", "accelerate", "lightning")


def machine_facts() -> list[str]:
    """Return a line for each: date, processor, load, system, torch, other packages."""
    libraries = re.findall(r"(oneAPI Math Kernel Library Version \S+|MKL-DNN v\S+)", _config())
    return [
        f"date: {date.today().isoformat()}",
        f"processor: {_processor()}, {os.cpu_count()} cores",
        f"load before: {os.getloadavg()[0]:.2f} (a figure taken under load means little)",
        f"system: {platform.system()} {platform.machine()}, Python {platform.python_version()}",
        f"torch {torch.__version__}: {', '.join(libraries)}, "
        f"{torch.backends.cpu.get_cpu_capability()}",
        *(f"{name} {_version(name)}" for name in PACKAGES),
    ]


def _config() -> str:
    return torch.__config__.show()


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        fields = dict(re.findall(r"^(.+?)\s*: (.*)$", cpuinfo.read_text(), re.MULTILINE))
        family, model = fields.get("cpu family"), fields.get("model")
        return f"{fields.get('model name', platform.processor())} (family {family}, model {model})"
    return platform.processor()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "is not installed"


if __name__ == "__main__":
    print("\n".join(f"- {fact}" for fact in machine_facts()))
