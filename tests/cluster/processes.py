"""Processes that may end while a test looks at them."""

from __future__ import annotations

import contextlib

import psutil


def command_line(process: psutil.Process) -> list[str]:
    """A process's command line; [] when it has ended."""
    with contextlib.suppress(psutil.Error):
        return list(process.cmdline())
    return []
