"""One line of text that changes in place while something is under way."""

from __future__ import annotations

import sys
from typing import Any


class LiveLine:
    """Shows how far something has come, and in the end what came of it.

    In a notebook it is one output that is updated, so that the saved notebook holds only the last
    text; in a terminal it is a line that is overwritten; elsewhere only the last text appears.
    """

    def __init__(self) -> None:
        self._shell = kernel_shell()
        self._handle: Any = None
        self._text = ""

    def show(self, text: str) -> None:
        """Show a text in place of the one before.

        Args:
            text: One line.
        """
        if text == self._text:
            return
        if self._shell is not None:
            self._show_in_notebook(text)
        elif sys.stderr.isatty():
            sys.stderr.write(f"\r{text.ljust(len(self._text))}")
            sys.stderr.flush()
        self._text = text

    def end(self, text: str) -> None:
        """Show the last text.

        Args:
            text: One line.
        """
        if self._shell is not None:
            self._show_in_notebook(text)
        elif sys.stderr.isatty():
            sys.stderr.write(f"\r{text.ljust(len(self._text))}\n")
        else:
            print(text, file=sys.stderr, flush=True)
        self._text = text

    def _show_in_notebook(self, text: str) -> None:
        from IPython.display import display

        if self._handle is None:
            self._handle = display({"text/plain": text}, raw=True, display_id=True)
        else:
            self._handle.update({"text/plain": text}, raw=True)


def kernel_shell() -> Any:
    """The shell of the notebook kernel that this process is; None in any other process."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell if getattr(shell, "kernel", None) is not None else None
