"""Loss curves of whole DCGAN trainings: CNTK's as published, and ours as recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).with_name("dcgan_curves.json")


class DcganCurve(NamedTuple):
    """Means over windows of steps, each of the last update of a network in its step."""

    name: str
    window: int  # steps
    generator: list[float]
    discriminator: list[float]

    @property
    def steps(self) -> list[int]:
        """The last step of each window."""
        return [self.window * (number + 1) for number in range(len(self.generator))]


def dcgan_curves() -> list[DcganCurve]:
    """Return the recorded curves.

    **Source:** the lines printed in two editions of CNTK's notebook 206B, 5,000 steps each; our
    own is that of docs/dcgan.md.
    """
    return [DcganCurve(**curve) for curve in json.loads(FILE.read_text(encoding="utf-8"))]
