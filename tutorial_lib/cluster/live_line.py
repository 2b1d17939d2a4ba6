"""One line of text that changes in place while something is under way."""

from __future__ import annotations

from tutorial_lib.display.live_output import LiveOutput


class LiveLine:
    """Shows in one line how far something has come, and in the end what came of it."""

    def __init__(self) -> None:
        self._output = LiveOutput()

    def show(self, text: str) -> None:
        """Show a text in place of the one before.

        Args:
            text: One line.
        """
        self._output.show({"text/plain": text})

    def end(self, text: str) -> None:
        """Show the last text.

        Args:
            text: One line.
        """
        self._output.end({"text/plain": text})
