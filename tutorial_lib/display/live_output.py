"""One output that changes in place while something is under way."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any


class LiveOutput:
    """Shows how far something has come, and in the end what came of it.

    In a notebook it is one output that is updated, so that the saved notebook holds only the last
    state; in a terminal it is a line that is overwritten; elsewhere only the last text appears.
    """

    def __init__(self) -> None:
        self._shell = kernel_shell()
        self._handle: Any = None
        self._shown: Mapping[str, str] = {}

    def show(self, bundle: Mapping[str, str]) -> None:
        """Show something in place of what was before.

        Args:
            bundle: By MIME type; text/plain at least. A terminal has its first line.
        """
        if bundle == self._shown:
            return
        if self._shell is not None:
            self._show_in_notebook(bundle)
        elif sys.stderr.isatty():
            self._overwrite(bundle)
        self._shown = bundle

    def end(self, bundle: Mapping[str, str]) -> None:
        """Show the last state.

        Args:
            bundle: By MIME type; text/plain at least.
        """
        if self._shell is not None:
            self._show_in_notebook(bundle)
        elif sys.stderr.isatty():
            self._overwrite(bundle)
            sys.stderr.write("\n")
        else:
            print(bundle["text/plain"], file=sys.stderr, flush=True)
        self._shown = bundle

    def _overwrite(self, bundle: Mapping[str, str]) -> None:
        before, line = (_first_line(b.get("text/plain", "")) for b in (self._shown, bundle))
        sys.stderr.write(f"\r{line.ljust(len(before))}")
        sys.stderr.flush()

    def _show_in_notebook(self, bundle: Mapping[str, str]) -> None:
        from IPython.display import display

        if self._handle is None:
            self._handle = display(dict(bundle), raw=True, display_id=True)
        else:
            self._handle.update(dict(bundle), raw=True)


def kernel_shell() -> Any:
    """The shell of the notebook kernel that this process is; None in any other process."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell if getattr(shell, "kernel", None) is not None else None


def _first_line(text: str) -> str:
    return text.split("\n", 1)[0]
