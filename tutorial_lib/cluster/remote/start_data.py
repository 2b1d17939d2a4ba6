"""What an engine on another host must know to find its cluster, and how it gets there.

It holds keys. So it travels in an environment variable, which other users can't read, and by
ssh's standard input: never on a command line, never in a file that hosts would have to share.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from typing import Any

START_VARIABLE = "GAN_TUTORIAL_START"


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

    def connection_by(self, address: str) -> dict[str, Any]:
        """The controller's connection for who has reached this host by one of its addresses.

        Args:
            address: The address.
        """
        return {**self.connection, "interface": f"tcp://{address}", "location": address}


def take() -> StartData | None:
    """Take it out of this process's environment, so that children don't get it; None without."""
    text = os.environ.pop(START_VARIABLE, None)
    if not text:
        return None
    fields = json.loads(text)
    return StartData(**{**fields, "ways": [(host, int(port)) for host, port in fields["ways"]]})
