"""What ranks print and show, brought into the notebook: rank 0 live, the others after it.

Text goes where a cell's own text goes and rich output through IPython's display, so that a
notebook, a batch run and a terminal show the same; without IPython all of it is plain text.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import Any

Message = dict[str, Any]

_OVERWRITTEN = re.compile(r"[^\n]*\r(?=[^\n])")  # text that a carriage return lets vanish


class Relay:
    """Orders the output of some ranks: the first one's at once, the others' when all is done.

    Every rank but rank 0 has its output under a line ``[rank 1]``.

    Args:
        ranks: In the order in which they are shown.
    """

    def __init__(self, ranks: Iterable[int]) -> None:
        self.first, *others = ranks
        self.waiting: dict[int, list[Message]] = {rank: [] for rank in others}
        self._is_named = self.first == 0

    def take(self, rank: int, message: Message) -> None:
        """Take in one message of a rank's output.

        Args:
            rank: Whose it is.
            message: As its engine sent it.
        """
        if rank != self.first:
            _keep(self.waiting[rank], message)
            return
        if not self._is_named:
            self._is_named = True
            message = _with_heading(rank, message)
        show(message)

    def finish(self) -> None:
        """Show what the other ranks have printed and shown, in order."""
        for rank, messages in self.waiting.items():
            last_stream = ""
            for message in messages:
                if message["msg_type"] == "stream":
                    text = _OVERWRITTEN.sub("", "".join(message["content"]["text"]))
                    message["content"]["text"] = text if text.endswith("\n") else f"{text}\n"
                if (stream := _stream(message)) != last_stream:
                    message = _with_heading(rank, message)
                    last_stream = stream
                show(message)
            messages.clear()


def show(message: Message) -> None:
    """Show one message of output here.

    Args:
        message: As an engine sent it: text, rich output, its update, or the wish to clear.
    """
    kind, content = message["msg_type"], message["content"]
    if kind == "stream":
        stream = sys.stderr if _stream(message) == "stderr" else sys.stdout
        stream.write(content["text"])
        stream.flush()
    elif not _is_in_ipython():
        if kind != "clear_output":
            print(content["data"].get("text/plain", ""), flush=True)
    elif kind == "clear_output":
        from IPython.display import clear_output

        clear_output(wait=content.get("wait", False))
    else:
        from IPython.display import display

        sys.stdout.flush()
        display(
            content["data"],
            metadata=content.get("metadata") or {},
            raw=True,
            display_id=_display_id(message),
            update=kind == "update_display_data",
        )


def _keep(messages: list[Message], message: Message) -> None:
    """Keep a message for later, as a notebook's output area would.

    Text is gathered in a list per stretch of one stream, so that each byte is copied once.
    """
    kind, content = message["msg_type"], message["content"]
    last = messages[-1] if messages else None
    if kind == "clear_output":
        messages.clear()
    elif kind == "stream":
        if last is not None and last["msg_type"] == kind and _stream(last) == _stream(message):
            last["content"]["text"].append(content["text"])
        else:
            text = [content["text"]]
            messages.append({"msg_type": kind, "content": {"name": content["name"], "text": text}})
    elif kind == "update_display_data":
        for shown in messages:
            if shown["msg_type"] != "stream" and _display_id(shown) == _display_id(message):
                shown["content"] = {**shown["content"], "data": content["data"]}
    else:
        messages.append({"msg_type": kind, "content": content})


def _with_heading(rank: int, message: Message) -> Message:
    """Name the rank in front of its output: in one piece with text, else on a line of its own."""
    heading, content = f"[rank {rank}]\n", message["content"]
    if message["msg_type"] == "stream":
        return {"msg_type": "stream", "content": {**content, "text": heading + content["text"]}}
    show({"msg_type": "stream", "content": {"name": "stdout", "text": heading}})
    return message


def _stream(message: Message) -> str:
    """Where a message shows: rich output stands with the standard output."""
    return "stderr" if message["content"].get("name") == "stderr" else "stdout"


def _display_id(message: Message) -> str | None:
    transient = message["content"].get("transient") or {}
    identity: str | None = transient.get("display_id")
    return identity


def _is_in_ipython() -> bool:
    ipython = sys.modules.get("IPython")
    return ipython is not None and ipython.get_ipython() is not None
