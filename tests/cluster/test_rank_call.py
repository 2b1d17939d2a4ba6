"""Work on the ranks: interrupts and releases at any moment, without real ranks."""

from __future__ import annotations

import signal
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import pytest

from tutorial_lib.cluster import hang_watch, rank_call
from tutorial_lib.cluster.control_channel import Engine
from tutorial_lib.cluster.hang_watch import HangWatch
from tutorial_lib.cluster.rank_call import RankCall, ignore
from tutorial_lib.distributed.mpi_pending import Pending

WAIT = Pending("", (0, 1), "barrier", 1, None, "", (), 0, 0.0, 600.0, is_waited_for=True)


class Control:
    """Two engines that answer to nothing but a signal."""

    def __init__(self) -> None:
        self.engines = {rank: Engine(rank, rank, str(rank)) for rank in (0, 1)}
        self.signals: list[tuple[int, int]] = []
        self.cancelled: list[int] = []
        self.client = SimpleNamespace(_engines={0: "0", 1: "1"})
        self.call: RankCall

    def ask(self, what: str, *of: object) -> dict[int, dict[str, Any]]:
        return {}

    def cancel(self, ranks: list[int], reason: str, is_timeout: bool = False) -> None:
        self.cancelled += ranks

    def signal(self, ranks: list[int], number: int) -> None:
        for rank in ranks:
            self.signals.append((rank, number))
            self.call.answers[rank] = answer("error", is_interrupt=True)


def answer(status: str, **details: object) -> dict[str, Any]:
    return {"status": status, "time": 0.0, **details}


@pytest.fixture
def call() -> RankCall:
    control: Any = Control()
    work = control.call = RankCall(control, ignore)
    return work


def test_interrupt_while_work_is_sent_reaches_who_has_it(
    call: RankCall, monkeypatch: pytest.MonkeyPatch
) -> None:
    def send(self: RankCall, function: object) -> None:
        self._message_ids[0] = "sent"
        raise KeyboardInterrupt

    monkeypatch.setattr(RankCall, "send", send)
    with pytest.raises(KeyboardInterrupt):
        call.wait(work=(print,))
    control: Any = call.control
    assert control.signals == [(0, signal.SIGINT)]


class Clock(SimpleNamespace):
    """Time that passes by being looked at."""

    now = 0.0

    def monotonic(self) -> float:
        self.now += 0.05
        return self.now


def test_ranks_have_time_to_leave_their_waits_however_late_they_are_told(
    call: RankCall, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This process may stand still between a rank's failure and the release of the others."""
    clock = Clock()
    stalls = iter([0.0, rank_call.ERROR_GRACE_S + rank_call.INTERRUPT_WAIT_S])

    def stall() -> None:
        clock.now += next(stalls, 0.0)

    monkeypatch.setattr(rank_call, "time", clock)
    monkeypatch.setattr(call, "_take_rest", lambda seconds: None)
    call.on_turn = stall
    call._message_ids = {0: "sent", 1: "sent"}
    call.answers[1] = answer("error", is_interrupt=False)
    call.wait()
    control: Any = call.control
    assert control.cancelled == [0]
    assert control.signals == [(0, signal.SIGINT)]


@pytest.mark.parametrize("tells_its_age", [True, False])
def test_hang_is_explained_after_the_limit_by_every_backend(
    tells_its_age: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(hang_watch, "time", clock)

    def ask(what: str, ranks: None, timeout_s: float) -> dict[int, dict[str, Any]]:
        age_s = clock.now if tells_its_age else 0.0
        wait = {**asdict(WAIT), "age_s": age_s}
        place = {"state": "busy", "site": "", "call": "", "stack": []}
        return {0: {**place, "waits": [wait]}, 1: {**place, "waits": []}}

    control: Any = SimpleNamespace(ask=ask, engines=[0, 1])
    said: list[str] = []
    line: Any = SimpleNamespace(show=said.append, end=said.append)
    watch = HangWatch(control, limit_s=30, timeout_s=600, line=line, _began=clock.monotonic())
    while not said:
        watch.look(lambda why: None)
    assert said == ["Waiting for 30 s: rank 1 is busy; rank 0 waits in barrier #1."]
    assert 30 <= clock.now < 30 + 2 * hang_watch.LONGEST_S
