"""What a check found: one line each, and whether there is something to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """What a finding asks of the reader."""

    OK = "OK"
    NOTE = "NOTE"
    FIX = "FIX"


@dataclass(frozen=True)
class Finding:
    """One line of a report.

    Attributes:
        verdict: Nothing to do, worth knowing, or to be mended before anything works.
        subject: What was looked at; at most 11 letters, for the columns to stand below each other.
        text: What was found, and for FIX what to do.
    """

    verdict: Verdict
    subject: str
    text: str

    def __str__(self) -> str:
        return f"{self.verdict:4}  {self.subject:11}  {self.text}"


class Report(tuple[Finding, ...]):
    """Findings in the order of their checks, shown a line each."""

    @property
    def is_ready(self) -> bool:
        """Whether nothing must be mended."""
        return all(finding.verdict is not Verdict.FIX for finding in self)

    def __repr__(self) -> str:
        return "\n".join(map(str, self))
