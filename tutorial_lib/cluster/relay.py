"""What ranks print and show, brought into the notebook: rank 0 live, the others after it.

Text goes where a cell's own text goes and rich output through IPython's display, so that a
notebook, a batch run and a terminal show the same; without IPython all of it is plain text.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

Message = dict[str, Any]


class Relay:
    """Orders the output of some ranks: the first one's at once, the others' when it has ended.

    Args:
        ranks: In the order in which they are shown.
    """

    def __init__(self, ranks: Iterable[int]) -> None:
        self.first, *others = ranks
        self.waiting: dict[int, list[Message]] = {rank: [] for rank in others}
        self._heading = self.first != 0

    def take(self, rank: int, message: Message) -> None:
        """Take in one message of a rank's output."""
        if rank == self.first:
            if self._heading:
                self._show_heading(rank, message)
                self._heading = False
            show(message)
        else:
            _append(self.waiting[rank], message)

    def finish(self) -> None:
        """Show what the other ranks have printed and shown, in order."""
        sys.stdout.flush()
        for rank, messages in self.waiting.items():
            stream = ""
            for message in messages:
                name = _stream_name(message)
                if name != stream:
                    self._show_heading(rank, message)
                    stream = name
                show(message)
            if messages:
                _end_line(messages[-1])
            messages.clear()

    def _show_heading(self, rank: int, message: Message) -> None:
        stream = sys.stderr if _stream_name(message) == "stderr" else sys.stdout
        stream.write(f"[rank {rank}]\n")
        stream.flush()


def show(message: Message) -> None:
    """Show one message of output here.

    Args:
        message: As an engine sent it: text, rich output, its update, or the wish to clear.
    """
    kind, content = message["msg_type"], message["content"]
    if kind == "stream":
        stream = sys.stderr if content["name"] == "stderr" else sys.stdout
        stream.write(content["text"])
        stream.flush()
        return
    if not _in_ipython():
        if kind != "clear_output":
            print(content["data"].get("text/plain", ""), flush=True)
        return
    from IPython.display import clear_output, display

    if kind == "clear_output":
        clear_output(wait=content.get("wait", False))
        return
    sys.stdout.flush()
    display(
        content["data"],
        metadata=content.get("metadata") or {},
        raw=True,
        display_id=(content.get("transient") or {}).get("display_id"),
        update=kind == "update_display_data",
    )


def _append(messages: list[Message], message: Message) -> None:
    """Keep a message for later, as a notebook's output area would hold it."""
    kind, content = message["msg_type"], message["content"]
    if kind == "clear_output":
        messages.clear()
    elif kind == "update_display_data":
        identity = content["transient"].get("display_id")
        for shown in messages:
            transient = shown["content"].get("transient") or {}
            if shown["msg_type"] != "stream" and transient.get("display_id") == identity:
                shown["content"] = {**shown["content"], "data": content["data"]}
    else:
        messages.append({"msg_type": kind, "content": dict(content)})


def _stream_name(message: Message) -> str:
    """Where a message shows: rich output stands with the standard output."""
    return "stderr" if message["content"].get("name") == "stderr" else "stdout"


def _end_line(message: Message) -> None:
    if message["msg_type"] == "stream" and not message["content"]["text"].endswith("\n"):
        show({"msg_type": "stream", "content": {**message["content"], "text": "\n"}})


def _in_ipython() -> bool:
    ipython = sys.modules.get("IPython")
    return ipython is not None and ipython.get_ipython() is not None
