"""What this rank's main thread is doing, told from another thread while it computes or waits.

Runs on the engines.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from types import FrameType
from typing import Any

from tutorial_lib.distributed import call_site

MOST_FRAMES = 40

_work: list[str] = []  # the file of the reader's code, while there is work


@contextmanager
def working(filename: str) -> Iterator[None]:
    """Note that this rank works.

    Args:
        filename: Where the reader's own code is; "" when that isn't known.
    """
    _work[:] = [filename]
    try:
        yield
    finally:
        _work.clear()


def whereabouts() -> dict[str, Any]:
    """What the main thread is doing: plain values, for a message.

    Returns:
        "state" ("idle" or "busy"), "site" and "call" (the reader's line, and what it calls
        there), "stack" (lines of text, outermost first, from the reader's code on) and "waits"
        (what has started between ranks and not ended, see ``Pending``).
    """
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    if not _work:
        return {"state": "idle", "site": "", "call": "", "stack": [], "waits": _waits(None)}
    frames = _from_reader(frame, _work[0])
    own = _reader(frames, _work[0])
    return {
        "state": "busy",
        "site": call_site.in_words(own) if own is not None else "",
        "call": call_site.expression(own) if own is not None else "",
        "stack": [f"{call_site.in_words(f)}, {f.f_code.co_qualname}" for f in frames],
        "waits": _waits(frame),
    }


def _from_reader(frame: FrameType | None, filename: str) -> list[FrameType]:
    """The frames from the outermost of the reader's code to the innermost."""
    frames = list(call_site.outward(frame))[::-1]
    for number, found in enumerate(frames):
        own = found.f_code.co_filename
        if own == filename or (not filename and own in call_site.names):
            return frames[number:][-MOST_FRAMES:]
    return []


def _reader(frames: list[FrameType], filename: str) -> FrameType | None:
    """The innermost frame of the reader's code: the cell, or what it has defined elsewhere."""
    for frame in reversed(frames):
        own = frame.f_code.co_filename
        if own == filename or own in call_site.names or not call_site.is_library(own):
            return frame
    return None


def _waits(frame: FrameType | None) -> list[dict[str, Any]]:
    backend = sys.modules.get("tutorial_lib.distributed.mpi_backend")
    waits = [asdict(pending) for pending in backend.pending()] if backend is not None else []
    return waits or _foreign_waits(frame)


def _foreign_waits(frame: FrameType | None) -> list[dict[str, Any]]:
    """The collective of another backend, such as gloo, that the main thread is in."""
    for outer in call_site.outward(frame):
        if outer.f_globals.get("__name__") == "torch.distributed.distributed_c10d":
            name = outer.f_code.co_name
            tensor = outer.f_locals.get("tensor")
            if not name.startswith("_") and name not in ("wrapper", "wait"):
                return [_foreign_wait(name, tensor)]
    return []


def _foreign_wait(operation: str, tensor: Any) -> dict[str, Any]:
    is_tensor = hasattr(tensor, "nbytes") and hasattr(tensor, "dtype")
    return {
        "group": "", "ranks": (), "operation": operation, "sequence": None, "peer": None,
        "dtype": str(tensor.dtype).removeprefix("torch.") if is_tensor else "",
        "shape": tuple(tensor.shape) if is_tensor else (),
        "nbytes": int(tensor.nbytes) if is_tensor else 0,
        "age_s": 0.0, "timeout_s": 0.0, "is_waited_for": True, "site": "",
    }  # fmt: skip
