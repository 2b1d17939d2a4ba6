"""The engine's side of the control channel: answers while the main thread computes or waits.

ipykernel handles control messages in a thread of its own; these are ours. No answer means that
the process is stopped, or in native code that keeps Python's lock.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from tutorial_lib.cluster import stacks

MESSAGE = "rank_control"


def serve(kernel: Any, rank: int) -> None:
    """Have a kernel answer our control messages.

    Args:
        kernel: The engine's.
        rank: Of this process.
    """

    def handle(stream: Any, identities: list[bytes], message: dict[str, Any]) -> None:
        try:
            content = {"rank": rank, **answer(message["content"])}
        except Exception as error:  # an answer comes in any case
            content = {"rank": rank, "error": f"{type(error).__name__}: {error}"}
        kernel.session.send(
            stream, f"{MESSAGE}_reply", content=content, parent=message, ident=identities
        )

    kernel.control_handlers[f"{MESSAGE}_request"] = handle


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Do what a control message asks for.

    Args:
        request: "what" is "ping", "where" or "cancel", the latter with a "reason", and with
            "is_timeout" when it stands for the group's time-out.

    Returns:
        The answer's content.
    """
    match request["what"]:
        case "ping":
            return {"pid": os.getpid(), "time": time.time()}
        case "where":
            return stacks.whereabouts()
        case "cancel":
            return cancel(request["reason"], request.get("is_timeout", False))
        case what:
            return {"error": f"no control message {what!r}"}


def cancel(reason: str, is_timeout: bool = False) -> dict[str, Any]:
    """End what this rank waits for.

    Args:
        reason: For the error that the waits end with.
        is_timeout: Whether that is a CollectiveTimeoutError.
    """
    # Before these are imported there is nothing of ours to wait for.
    homes = ("tutorial_lib.distributed.session", "tutorial_lib.distributed.mpi_backend")
    is_waiting = any(home in sys.modules for home in homes)
    if is_waiting:
        from tutorial_lib.distributed import recovery

        recovery.cancel(reason, is_timeout)
    return {"cancelled": is_waiting}
