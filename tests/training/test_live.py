"""``live`` in a process of its own: it counts as range does, and tells its end."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tutorial_lib.display.live_board import LiveBoard
from tutorial_lib.learners.schedules import learning_parameter_schedule_per_sample
from tutorial_lib.learners.sgd import sgd
from tutorial_lib.training import live as live_module
from tutorial_lib.training.live import live
from tutorial_lib.training.trainer import Trainer


@pytest.fixture
def trainer() -> Trainer:
    model = nn.Linear(2, 1)
    rate = learning_parameter_schedule_per_sample(0.01)
    return Trainer(
        model, lambda model, x: model(x).square().squeeze(1), sgd(model.parameters(), rate)
    )


@pytest.fixture
def boards(monkeypatch: pytest.MonkeyPatch) -> list[LiveBoard]:
    made: list[LiveBoard] = []

    class Kept(LiveBoard):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    monkeypatch.setattr(live_module, "LiveBoard", Kept)
    return made


def test_without_a_front_end_there_is_the_final_state_as_text(
    trainer: Trainer, boards: list[LiveBoard], capsys: pytest.CaptureFixture[str]
) -> None:
    losses, counted = [], []
    for step in live(5, {"loss": trainer}):
        trainer.train_minibatch(torch.ones(4, 2))
        losses.append(trainer.previous_minibatch_loss_average)
        counted.append(step)
    assert counted == list(range(5))
    out, err = capsys.readouterr()
    assert out == ""
    assert "step 5 of 5" in err.splitlines()[0]
    assert len(err.splitlines()) == 3  # the bar, and a table of one rank
    (board,) = boards
    assert board.losses == {"loss": ([1, 2, 3, 4, 5], losses)}
    assert board.reports[0]["samples"] == 20
    assert board.reports[0]["communication"] is None


def test_error_and_break_end_the_board_too(
    boards: list[LiveBoard], capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        for step in live(5):
            if step == 2:
                raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011 - it is the test's own
        fail()
    for step in live(5):
        if step == 3:
            break
    assert [board.reports[0]["step"] for board in boards] == [2, 3]
    assert all(board.is_over for board in boards)
    assert capsys.readouterr().err.count("stopped") == 2


def test_reports_take_a_small_share_of_the_time_however_slow_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, sent = 0.0, []

    def send(report: dict[str, Any]) -> None:
        nonlocal now
        now += 0.05  # a busy machine
        sent.append(report["step"])

    monkeypatch.setattr(live_module.time, "perf_counter", lambda: now)
    monkeypatch.setattr(live_module, "_channel", lambda is_main: send)
    for _ in live(10_000):
        now += 0.01
    assert sent[0] == 0
    assert sent[-1] == 10_000
    assert 0.05 * len(sent) < 1.1 * live_module.SHARE * now + 0.1
