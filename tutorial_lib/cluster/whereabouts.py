"""What the ranks are doing at one moment, for people."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tutorial_lib.distributed.mpi_pending import Pending


@dataclass(frozen=True)
class Place:
    """Where one rank is.

    Attributes:
        rank: Which.
        state: "busy", "idle", or "silent": it does not answer, because its process is stopped or
            in native code that keeps Python's lock.
        site: The line of the reader's code that it executes: "line 12 of the cell".
        call: What it calls there, without arguments: "d_loss.backward".
        stack: Lines of text, from the reader's code to the innermost frame.
        waits: What it has begun between ranks and not ended, oldest first.
    """

    rank: int
    state: str
    site: str = ""
    call: str = ""
    stack: tuple[str, ...] = ()
    waits: tuple[Pending, ...] = ()

    @property
    def wait(self) -> Pending | None:
        """What it waits for now, rather than computing meanwhile."""
        return next((wait for wait in self.waits if wait.is_waited_for), None)

    def __str__(self) -> str:
        """What it does, as a clause that follows "rank 1 ", for one rank."""
        at = f" at {self.site}" if self.site else ""
        if (wait := self.wait) is not None:
            what = ", ".join(part for part in (self.call, size(wait)) if part)
            return f"waits in {operation(wait)}{f' ({what})' if what else ''}{at}"
        if self.state == "silent":
            return "does not answer: it is stopped, or in native code"
        if self.state == "idle":
            return "has nothing to do: it has finished, or this cell is not for it"
        return f"is{at}{f' ({self.call})' if self.call else ''}" if at else "is busy"


class Whereabouts(Mapping[int, Place]):
    """Where the ranks are, by rank; shows itself as text.

    Args:
        places: By rank.
    """

    def __init__(self, places: Mapping[int, Place]) -> None:
        self._places = dict(sorted(places.items()))

    def __getitem__(self, rank: int) -> Place:
        return self._places[rank]

    def __iter__(self) -> Any:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def summary(self, ranks: Iterable[int] | None = None) -> str:
        """Who is where, in one sentence; whoever does not wait comes first.

        Args:
            ranks: Of whom; None for all.
        """
        chosen = [self[rank] for rank in (self if ranks is None else ranks)]
        chosen.sort(key=lambda place: (place.wait is not None, place.rank))
        groups: dict[str, list[int]] = {}
        for place in chosen:
            groups.setdefault(str(place), []).append(place.rank)
        return "; ".join(sentence(found, text) for text, found in groups.items())

    def longest_wait_s(self) -> float:
        """The age of the oldest wait, in seconds; 0 when nobody waits."""
        return max((p.wait.age_s for p in self.values() if p.wait is not None), default=0.0)

    def __repr__(self) -> str:
        lines = []
        for place in self.values():
            lines.append(f"rank {place.rank} {place}")
            lines += [f"    {line}" for line in place.stack]
            lines += [f"    under way: {w}, for {w.age_s:.1f} s" for w in place.waits]
        return "\n".join(lines)


def read(answers: Mapping[int, Mapping[str, Any]], ranks: Iterable[int]) -> Whereabouts:
    """Make whereabouts of what ranks answered to "where".

    Args:
        answers: By rank.
        ranks: Who was asked.
    """
    places = {}
    for rank in ranks:
        answer = answers.get(rank)
        if answer is None or "state" not in answer:
            places[rank] = Place(rank, "silent")
            continue
        waits = tuple(
            Pending(**{**wait, "ranks": tuple(wait["ranks"]), "shape": tuple(wait["shape"])})
            for wait in answer["waits"]
        )
        stack = tuple(answer["stack"])
        places[rank] = Place(rank, answer["state"], answer["site"], answer["call"], stack, waits)
    return Whereabouts(places)


def operation(wait: Pending) -> str:
    """Name and number of what is waited for: "all_reduce #57"."""
    group = "" if wait.group in ("", "0") else f" of group {wait.group!r}"
    return f"{wait.name}{group}"


def size(wait: Pending) -> str:
    """How much it moves: "32 KiB"."""
    for unit, scale in (("MiB", 2**20), ("KiB", 2**10)):
        if wait.nbytes >= scale:
            return f"{wait.nbytes / scale:.0f} {unit}"
    return f"{wait.nbytes} bytes" if wait.nbytes else ""


def sentence(ranks: list[int], clause: str) -> str:
    """A clause of one rank, said of several: "ranks 0, 2 wait in ..."."""
    if len(ranks) == 1:
        return f"rank {ranks[0]} {clause}"
    plurals = {"waits": "wait", "is": "are", "has": "have", "does": "do", "was": "were"}
    verb, _, rest = clause.partition(" ")
    rest = re.sub(r"\bit (is|has|takes)\b", _plural, rest)
    return f"ranks {', '.join(map(str, ranks))} {plurals.get(verb, verb)} {rest}"


def _plural(match: re.Match[str]) -> str:
    return f"they {({'is': 'are', 'has': 'have', 'takes': 'take'})[match[1]]}"


def count(n: int) -> str:
    """So many ranks, in words."""
    return "1 rank" if n == 1 else f"{n} ranks"
