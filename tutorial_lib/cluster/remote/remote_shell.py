"""The ssh that MPI starts its daemons on other hosts with.

    python -m tutorial_lib.cluster.remote.remote_shell [options of ssh] HOST COMMAND...

It is ssh that never asks and never waits for ever, and that hands the keys of the cluster to the
command by its standard input, from where they get into the command's environment.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence

from tutorial_lib.cluster.remote import start_data
from tutorial_lib.cluster.remote.start_data import START_VARIABLE

SSH_VARIABLE = "GAN_TUTORIAL_SSH"
CONNECT_S = 10
ALIVE_INTERVAL_S, ALIVE_COUNT = 10, 3  # longer than the links' silence, which says more
IPCLUSTER_VARIABLE = "IPP_CONNECTION_INFO"
_WITH_VALUE = frozenset("BbcDEeFIiJLlmOopQRSWw")  # options of ssh that a value follows


def ssh_command() -> list[str]:
    """The beginning of a command line of ssh: the user's program and options, then ours."""
    options = {
        "BatchMode": "yes",  # nobody is there to answer
        "ConnectTimeout": CONNECT_S,
        "ServerAliveInterval": ALIVE_INTERVAL_S,
        "ServerAliveCountMax": ALIVE_COUNT,
        "ControlPath": "none",  # a shared connection would outlive the cluster
        "ForwardX11": "no",
        "LogLevel": "ERROR",
    }
    chosen = shlex.split(os.environ.get(SSH_VARIABLE) or "ssh")
    return [
        *chosen,
        *(part for name, value in options.items() for part in ("-o", f"{name}={value}")),
    ]


def split(arguments: Sequence[str]) -> tuple[list[str], str, list[str]]:
    """Take a command line of ssh apart.

    Args:
        arguments: All behind "ssh".

    Returns:
        Its options, the host, and the command.

    Raises:
        ValueError: There is no host in it.
    """
    place = 0
    while place < len(arguments) and arguments[place].startswith("-"):
        option = arguments[place]
        place += 2 if len(option) == 2 and option[1] in _WITH_VALUE else 1
    if place >= len(arguments):
        raise ValueError(f"no host in the arguments {shlex.join(arguments)!r}")
    return list(arguments[:place]), arguments[place], list(arguments[place + 1 :])


def with_secrets(command: str) -> tuple[str, str]:
    """Make a command read its keys from its standard input.

    Args:
        command: For a shell.

    Returns:
        A command for any shell, and its standard input.
    """
    given = {
        START_VARIABLE: start_data.read(),
        IPCLUSTER_VARIABLE: os.environ.get(IPCLUSTER_VARIABLE, ""),
    }
    secrets = {name: value for name, value in given.items() if value}
    reading = "".join(f"IFS= read -r {name} && export {name}; " for name in secrets)
    text = "".join(f"{value}\n" for value in secrets.values())
    return f"exec sh -c {shlex.quote(reading + command)}", text


def main() -> None:
    """Become ssh."""
    options, host, words = split(sys.argv[1:])
    command, text = with_secrets(" ".join(words))
    read_end, write_end = os.pipe()
    with os.fdopen(write_end, "w") as pipe:  # far less than a pipe takes
        pipe.write(text)
    os.dup2(read_end, 0)
    ssh = [*ssh_command(), *options, host, command]
    os.execvp(ssh[0], ssh)


if __name__ == "__main__":
    main()
