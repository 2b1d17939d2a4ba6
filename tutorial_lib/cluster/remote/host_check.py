"""Whether other hosts can take ranks, asked before MPI is: it would not say which host, and why."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from tutorial_lib.cluster.errors import HostsError
from tutorial_lib.cluster.remote.remote_shell import CONNECT_S, ssh_command

ANSWER_S = 30.0  # a busy host may take long to load Python
AT_ONCE = 32
OK = "ready for ranks"
SSH_FAILED = 255
LINES = 5
INSTALL = "install the same there, at the same path as here"

# What ssh says, and what to do about it.
REMEDIES = (
    (
        r"Host key verification failed|REMOTE HOST IDENTIFICATION",
        "ssh does not know its key: run `ssh {host}` once by hand and compare the key, or put the "
        "right one into known_hosts",
    ),
    (
        r"Permission denied",
        "ssh is refused: this user needs a key there that asks for no password, for example by "
        "`ssh-copy-id {host}`",
    ),
    (
        r"Could not resolve hostname",
        "ssh does not know the name: correct it, or put it into /etc/hosts or the DNS",
    ),
    (
        r"Connection refused",
        "no ssh server answers there: start one, or give its port in ~/.ssh/config",
    ),
    (
        r"timed out|No route to host|Network is unreachable|Connection closed|Connection reset",
        "it can't be reached: look whether it is up and what firewalls let through",
    ),
)


def check(hosts: Sequence[str]) -> None:
    """Have each host start this Python over ssh and import what an engine needs.

    Args:
        hosts: Their names, without this one.

    Raises:
        HostsError: Some can't take ranks: the message says which, why, and what to do.
    """
    with ThreadPoolExecutor(AT_ONCE) as pool:
        problems = [problem for problem in pool.map(_problem, hosts) if problem]
    if problems:
        raise HostsError("\n".join(problems))


def _problem(host: str) -> str:
    """Why a host can't take ranks, or ""."""
    program = f"import tutorial_lib.cluster.engine, mpi4py, ipyparallel; print({OK!r})"
    command = shlex.join([sys.executable, "-P", "-c", program])
    try:
        run = subprocess.run(
            [*ssh_command(), host, command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=CONNECT_S + ANSWER_S,
        )
    except OSError as error:
        return f"{host}: ssh does not run here: {error}"
    except subprocess.TimeoutExpired:
        return f"{host}: it has not answered within {CONNECT_S + ANSWER_S:.0f} s"
    if run.returncode == 0 and OK in run.stdout:
        return ""
    said = "\n".join((run.stderr.strip() or run.stdout.strip()).splitlines()[-LINES:])
    return f"{host}: {_remedy(host, run.returncode, said)}\n{said}".strip()


def _remedy(host: str, status: int, said: str) -> str:
    if status == SSH_FAILED:
        for pattern, remedy in REMEDIES:
            if re.search(pattern, said):
                return remedy.format(host=host)
        return f"ssh fails: run `ssh {host}` by hand"
    if match := re.search(r"No module named '?([\w.]+)", said):
        return f"its {sys.executable} has no {match[1]}: {INSTALL}"
    if status in (126, 127):
        return f"it has no {sys.executable}: {INSTALL}"
    return f"{sys.executable} fails there with exit status {status}"
