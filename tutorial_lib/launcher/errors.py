"""What a person at the shell is told when a command cannot do what they asked."""

from __future__ import annotations


class CommandError(Exception):
    """A command cannot go on; the message is one line: what is wrong, and what to do."""
