"""Floods of output: bounded in the notebook, whole in the log."""

from __future__ import annotations

import io
import random

from tutorial_lib.cluster import output_limit
from tutorial_lib.cluster.output_limit import OutputLimit


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def lines(n: int) -> list[str]:
    return [f"line {i} of a flood\n" for i in range(n)]


def test_what_is_not_much_passes_unchanged_in_the_same_pieces() -> None:
    shown: list[str] = []
    limit = OutputLimit(shown.append, None, 0)
    pieces = ["a", "", "b\n", "10 %\r20 %", "\n", "ü" * 1000, "no end"]
    assert [limit.write(piece) for piece in pieces] == [len(piece) for piece in pieces]
    limit.finish()
    assert shown == pieces


def test_flood_is_cut_at_lines_and_says_how_many_and_the_log_has_all() -> None:
    for is_one_piece in (True, False):
        shown: list[str] = []
        log, clock = io.StringIO(), Clock()
        limit = OutputLimit(shown.append, log, 3, clock)
        flood = lines(100_000)
        for piece in ["".join(flood)] if is_one_piece else flood:
            limit.write(piece)
        limit.finish()
        text = "".join(shown)
        assert log.getvalue() == "".join(flood)
        assert len(text) < output_limit.BURST_CHARACTERS + 1000
        head, notice, tail = text.partition("... ")
        kept = head.splitlines(keepends=True)
        assert kept == flood[: len(kept)]
        left_out = 100_000 - len(kept) - output_limit.TAIL_LINES
        assert notice + tail == (
            f"... {left_out:,} lines left out: the file ranks.logs[3] has them ...\n"
            + "".join(flood[-output_limit.TAIL_LINES :])
        )


def test_every_line_is_shown_or_counted_and_the_rate_is_bounded() -> None:
    shown: list[str] = []
    clock, random_numbers = Clock(), random.Random(1)
    limit = OutputLimit(shown.append, None, 0, clock)
    flood = lines(200_000)
    for line in flood:
        for piece in (line[:-1], "\n"):  # as print does
            limit.write(piece)
        clock.now += random_numbers.expovariate(10_000)
    limit.finish()
    seen = "".join(shown).splitlines()
    counted = sum(int(s.split()[1].replace(",", "")) for s in seen if s.startswith("... "))
    assert counted + sum(s.startswith("line") for s in seen) == 200_000
    assert seen[-1] == flood[-1].rstrip()
    bound = output_limit.BURST_CHARACTERS + output_limit.CHARACTERS_S * clock.now
    assert bound / 2 < sum(map(len, shown)) < 1.1 * bound
    assert len([s for s in seen if s.startswith("... ")]) <= clock.now + 2


def test_slow_printing_is_never_cut() -> None:
    shown: list[str] = []
    clock = Clock()
    limit = OutputLimit(shown.append, None, 0, clock)
    for line in (slow := lines(50_000)):
        limit.write(line)
        clock.now += 0.002
    assert shown == slow
