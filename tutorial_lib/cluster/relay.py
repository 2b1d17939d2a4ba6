"""What ranks print and show, brought into the notebook: rank 0 live, the others after it.

Text goes where a cell's own text goes and rich output through IPython's display, so that a
notebook, a batch run and a terminal show the same; without IPython all of it is plain text.

While a long cell runs, the other ranks have a line each above all output. To show and to remove
these lines the cell's output is cleared and sent again: twice in all, however long the cell runs.
"""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Iterable
from typing import Any

from tutorial_lib.cluster.lane import Lane, Message, display_id, stream
from tutorial_lib.cluster.live_line import LiveLine
from tutorial_lib.display.fold import fold
from tutorial_lib.display.live_board import MIME, LiveBoard
from tutorial_lib.display.live_output import kernel_shell

LINES_AFTER_S = 1.5  # a shorter cell shows the others' output soon enough
LINES_EVERY_S = 1.0


class Relay:
    """Orders the output of some ranks: the first one's at once, the others' when all is done.

    Every rank but rank 0 has its output under a line ``[rank 1]``, and more than a line of text
    folded, where that can be.

    Args:
        ranks: In the order in which they are shown.
        is_whole_cell: Whether nothing else has output in the cell, so that it may be cleared.
        is_unfolded: Whether the other ranks' text is in the open too.
    """

    def __init__(
        self, ranks: Iterable[int], is_whole_cell: bool = False, is_unfolded: bool = False
    ) -> None:
        self.first, *others = ranks
        self.others = {rank: Lane() for rank in others}
        self._own = Lane()  # of the first rank
        self._is_named = self.first == 0
        self._open_stream = ""  # the stream whose last line the first rank has not ended
        self._is_unfolded = is_unfolded
        self._has_lines = is_whole_cell and bool(others) and kernel_shell() is not None
        self._lines: LiveLine | None = None
        self._lines_due = time.monotonic() + LINES_AFTER_S
        self._board: LiveBoard | None = None
        self._board_id = ""

    def take(self, rank: int, message: Message) -> None:
        """Take in one message of a rank's output.

        Args:
            rank: Whose it is.
            message: As its engine sent it.
        """
        if report := message["content"].get("data", {}).get(MIME):
            self._take_report(rank, report)
        elif rank == self.first:
            self._take_own(message)
        else:
            self.others[rank].keep(message)

    def _take_own(self, message: Message) -> None:
        if not self._is_named:
            self._is_named = True
            show(heading(self.first))
        if message["msg_type"] == "clear_output":
            self._has_lines, self._lines = False, None  # the reader's code clears, and we don't
        if self._has_lines:
            self._own.keep(message)
        if message["msg_type"] != "update_display_data":
            is_open = not message["content"].get("text", "\n").endswith("\n")
            self._open_stream = stream(message) if is_open else ""
        show(message)

    def _take_report(self, rank: int, report: dict[str, Any]) -> None:
        """Take in how far a rank's training is; the board stands where the first rank began."""
        if self._board is None or (rank == self.first and self._board.is_over):
            self._show_board()
            self._board, self._board_id = LiveBoard(self.first), ""
        self._board.take(report)
        if rank in self.others:
            self.others[rank].reach(report["step"])
        if rank == self.first and not self._board_id and is_rich():
            self._show_board()

    def _show_board(self) -> None:
        if self._board is None or self.first not in self._board.reports:
            return
        kind = "update_display_data" if self._board_id else "display_data"
        self._board_id = self._board_id or uuid.uuid4().hex
        transient = {"display_id": self._board_id}
        content = {"data": self._board.bundle(), "transient": transient}
        self._take_own({"msg_type": kind, "content": content})

    def tick(self) -> None:
        """Bring the board, and the lines of the other ranks, up to date; called meanwhile."""
        if self._board is not None and self._board_id and self._board.is_due():
            self._show_board()
        now = time.monotonic()
        if not self._has_lines or now < self._lines_due:
            return
        self._lines_due = now + LINES_EVERY_S
        if not any(lane.last_line for lane in self.others.values()):
            return
        text = "\n".join(
            f"rank {rank}  {lane.line()}" for rank, lane in self.others.items() if lane.last_line
        )
        if self._lines is None:
            show({"msg_type": "clear_output", "content": {"wait": True}})
            self._lines = LiveLine()
            self._lines.show(text)
            self._show_own()
        else:
            self._lines.show(text)

    def finish(self) -> None:
        """Show what the other ranks have printed and shown, in order."""
        self._show_board()
        self._board = None
        if self._lines is not None:
            is_followed = any(lane.messages for lane in (self._own, *self.others.values()))
            show({"msg_type": "clear_output", "content": {"wait": is_followed}})
            self._show_own()
        self._has_lines, self._lines = False, None
        for rank, lane in self.others.items():
            last_stream = ""
            for message in lane.final():
                is_named = stream(message) == last_stream
                last_stream = stream(message)
                self._show_other(rank, message, is_named)
            lane.messages.clear()

    def _show_own(self) -> None:
        if self.first != 0:
            show(heading(self.first))
        for message in self._own.messages:
            content = message["content"]
            if message["msg_type"] == "stream":
                content = {**content, "text": "".join(content["text"])}
            show({"msg_type": message["msg_type"], "content": content})

    def _show_other(self, rank: int, message: Message, is_named: bool) -> None:
        content, is_open = message["content"], stream(message) == self._open_stream
        self._open_stream = ""
        if message["msg_type"] == "stream" and content["text"].count("\n") > 1 and is_rich():
            name = f"rank {rank}" + (", stderr" if stream(message) == "stderr" else "")
            data = fold(name, content["text"], self._is_unfolded)
            show({"msg_type": "display_data", "content": {"data": data}})
            return
        if not is_named:
            name = stream(message)
            if is_open:
                show({"msg_type": "stream", "content": {"name": name, "text": "\n"}})
            show(heading(rank, name))
        show(message)


def heading(rank: int, name: str = "stdout") -> Message:
    """The line that names a rank above its output."""
    return {"msg_type": "stream", "content": {"name": name, "text": f"[rank {rank}]\n"}}


def show(message: Message) -> None:
    """Show one message of output here.

    Args:
        message: As an engine sent it: text, rich output, its update, or the wish to clear.
    """
    kind, content = message["msg_type"], message["content"]
    if kind == "stream":
        target = sys.stderr if stream(message) == "stderr" else sys.stdout
        target.write(content["text"])
        target.flush()
    elif not is_rich():
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
            display_id=display_id(message),
            update=kind == "update_display_data",
        )


def is_rich() -> bool:
    """Whether IPython shows more than text here."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and ipython.get_ipython() is not None
