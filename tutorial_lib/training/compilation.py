"""``torch.compile``, where the machine can."""

from __future__ import annotations

import os
import shutil
import warnings

from torch import nn


def has_compiler() -> bool:
    """Whether there is a C++ compiler, which torch's default backend needs on the CPU."""
    names = [os.environ.get("CXX"), "g++", "clang++", "c++"]
    return any(shutil.which(name) for name in names if name)


def compile_network(network: nn.Module, backend: bool | str) -> None:
    """Compile a network in place: its parameters' names stay what they are.

    Args:
        network: Compiled at its first call.
        backend: True for torch's own backend, which needs a C++ compiler and without one is left
            out with a warning; the name of another; False for none.

    **Distributed:** not collective; the ranks of a machine share the compiled code by its cache.
    """
    if backend is True and not has_compiler():
        warnings.warn(
            "no C++ compiler found, so the network isn't compiled: install g++ or clang++, or "
            "name it in CXX",
            stacklevel=3,
        )
        return
    if backend:
        network.compile(backend="inductor" if backend is True else backend)
