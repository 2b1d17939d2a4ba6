"""The output of one rank: kept as a notebook's output area would hold it, and its last line."""

from __future__ import annotations

import re
import time
from typing import Any

from tutorial_lib.display.fold import shorten

Message = dict[str, Any]

_TAIL = 1000  # characters; a line is shown shorter
_OVERWRITTEN = re.compile(r"[^\n]*\r(?=[^\n])")  # text that a carriage return lets vanish


class Lane:
    """What one rank has printed and shown in a cell so far."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.last_line = ""
        self._tail = ""  # of the stretch of text that came last: a line may come in pieces
        self.step: int | None = None  # of the training that the rank reports on
        self.changed_at = time.monotonic()

    def keep(self, message: Message) -> None:
        """Take in a message.

        Text is gathered in a list per stretch of one stream, so that each byte is copied once.

        Args:
            message: As its engine sent it.
        """
        self.changed_at = time.monotonic()
        kind, content = message["msg_type"], message["content"]
        last = self.messages[-1] if self.messages else None
        if kind == "clear_output":
            self.messages.clear()
        elif kind == "stream":
            if last is not None and last["msg_type"] == kind and stream(last) == stream(message):
                last["content"]["text"].append(content["text"])
            else:
                self._tail = ""
                gathered = {"name": content["name"], "text": [content["text"]]}
                self.messages.append({"msg_type": kind, "content": gathered})
            self._tail = (self._tail + content["text"])[-_TAIL:]
            self.last_line = _last_line(self._tail) or self.last_line
        elif kind == "update_display_data":
            for shown in self.messages:
                is_text = shown["msg_type"] == "stream"
                if not is_text and display_id(shown) == display_id(message):
                    shown["content"] = {**shown["content"], "data": content["data"]}
        else:
            self.messages.append({"msg_type": kind, "content": content})

    def reach(self, step: int) -> None:
        """Take note of how far the rank's training is."""
        self.step = step
        self.changed_at = time.monotonic()

    def line(self) -> str:
        """The last line, the step, and how long ago the rank was last heard of."""
        age_s = time.monotonic() - self.changed_at
        step = "" if self.step is None else f"step {self.step:,}  "
        return f"{step}{age_s:.0f} s ago  {shorten(self.last_line)}"

    def final(self) -> list[Message]:
        """What there is to show in the end: messages with whole text, overwritten lines gone."""
        shown = []
        for message in self.messages:
            content = message["content"]
            if message["msg_type"] == "stream":
                text = _OVERWRITTEN.sub("", "".join(content["text"]))
                content = {**content, "text": text if text.endswith("\n") else f"{text}\n"}
            shown.append({"msg_type": message["msg_type"], "content": content})
        return shown


def stream(message: Message) -> str:
    """Where a message shows: rich output stands with the standard output."""
    return "stderr" if message["content"].get("name") == "stderr" else "stdout"


def display_id(message: Message) -> str | None:
    """What a later update calls this output, if it is to be updated."""
    transient = message["content"].get("transient") or {}
    identity: str | None = transient.get("display_id")
    return identity


def _last_line(text: str) -> str:
    """The last line with anything in it."""
    lines = [line for line in re.split(r"[\r\n]", text) if line.strip()]
    return lines[-1] if lines else ""
