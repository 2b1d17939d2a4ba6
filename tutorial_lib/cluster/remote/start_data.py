"""What an engine on another host must know to find its cluster, and how it gets there.

It holds keys. So it travels in an environment variable, which other users can't read, and by
ssh's standard input: never on a command line, never in a file that hosts would have to share.
MPICH's mpiexec sends its whole environment to other hosts in the clear, whatever it is told to
pass on. So mpiexec itself gets the path of a file on its host, for ssh and for ranks there.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tutorial_lib.cluster.runtime import ClusterFolder, write_private

START_VARIABLE = "GAN_TUTORIAL_START"
FILE_VARIABLE = "GAN_TUTORIAL_START_FILE"


@dataclass(frozen=True)
class StartData:
    """How an engine reaches the supervisor and the controller.

    Attributes:
        cluster: Name of the cluster's folder.
        ways: Addresses and ports of the supervisor; which one an engine can reach depends on its
            network.
        token: Known to the cluster's own processes only.
        silence_s: After so long without a sign of life, each side takes the other for lost, in
            seconds.
        connection: What ipyparallel's controller writes for engines, with its key.
    """

    cluster: str
    ways: list[tuple[str, int]]
    token: str
    silence_s: float
    connection: dict[str, Any]

    def encode(self) -> str:
        """As the value of the variable: one line."""
        return json.dumps(asdict(self))

    def hand_over(self, folder: ClusterFolder, file: str) -> dict[str, str]:
        """The environment variable for what starts the engines.

        Args:
            folder: Of the cluster.
            file: Name of a file in it to write this to; "" for the environment itself.
        """
        if not file:
            return {START_VARIABLE: self.encode()}
        path = folder.engine_file.with_name(file)
        write_private(path, self.encode())
        return {FILE_VARIABLE: str(path)}

    def connection_by(self, address: str) -> dict[str, Any]:
        """The controller's connection for who has reached this host by one of its addresses.

        Args:
            address: The address.
        """
        return {**self.connection, "interface": f"tcp://{address}", "location": address}


def take() -> StartData | None:
    """Take it out of this process's environment, so that children don't get it; None without."""
    text = read()
    for name in (START_VARIABLE, FILE_VARIABLE):
        os.environ.pop(name, None)
    if not text:
        return None
    fields = json.loads(text)
    return StartData(**{**fields, "ways": [(host, int(port)) for host, port in fields["ways"]]})


def read() -> str:
    """The start data of this process as text, from its environment or a file; "" without."""
    if text := os.environ.get(START_VARIABLE):
        return text
    if path := os.environ.get(FILE_VARIABLE):
        with contextlib.suppress(FileNotFoundError):  # of another host
            return Path(path).read_text(encoding="utf-8")
    return ""
