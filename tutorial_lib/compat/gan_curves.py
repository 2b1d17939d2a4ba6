"""Losses of CNTK's Basic GAN, recorded from a running CNTK 2.7."""

from __future__ import annotations

import json
from pathlib import Path

FILE = Path(__file__).with_name("gan_curves.json")


def cntk_losses(workers: int, bits: int = 32) -> list[tuple[str, float]]:
    """Return what CNTK 2.7 reported, update by update, in the example's fast mode.

    Args:
        workers: 1, 2 or 4; the example runs on no other number.
        bits: In which gradients travelled: 32, or 1 on 2 workers.

    Returns:
        (network, loss per sample), the networks in the order D, D, G: 900 updates, but 30 on 4
        workers.

    Raises:
        ValueError: There is no such record; take one of the above.
    """
    records = json.loads(FILE.read_text(encoding="utf-8"))
    name = f"{workers} workers, {bits} bits"
    if name not in records:
        raise ValueError(f"CNTK was not recorded on {name}, only on: {'; '.join(records)}")
    return [("DDG"[number % 3], loss) for number, loss in enumerate(records[name])]
