"""The lines that CNTK's own printer printed, character for character but for times."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tutorial_lib.learners.fsadagrad import fsadagrad
from tutorial_lib.learners.learner import Learner
from tutorial_lib.learners.schedules import (
    learning_parameter_schedule_per_sample,
    momentum_schedule,
    momentum_schedule_per_sample,
)
from tutorial_lib.learners.sgd import momentum_sgd
from tutorial_lib.training.progress import ProgressPrinter

GOLDEN = Path(__file__).parent / "golden"
TIMES = re.compile(r"\d+\.\d{3}s \( *\d+\.\d samples/s\)")


@dataclass(frozen=True)
class Block:
    """One recorded training: the printer's arguments and how long it went."""

    title: str
    arguments: dict[str, Any]
    updates: int
    has_metric: bool = False
    summary_every: int = 0


BLOCKS = [
    Block("freq=4 rank", {"freq": 4}, 9),
    Block(
        "freq=4 metric tag=Training num_epochs=3, summary every 5",
        {"freq": 4, "tag": "Training", "num_epochs": 3},
        10,
        True,
        5,
    ),
    Block("freq=4 first=2", {"freq": 4, "first": 2}, 9),
    Block("freq=0 metric", {"freq": 0}, 20, True, 10),
    Block("freq=0 no metric", {"freq": 0}, 9),
    Block("freq=None summary metric_is_pct False", {"metric_is_pct": False}, 4, True, 4),
    Block("freq=2 metric_is_pct False", {"freq": 2, "metric_is_pct": False}, 4, True),
    Block("freq=4 distributed_freq=3", {"freq": 4, "distributed_freq": 3}, 9),
    Block(
        "freq=4 distributed_freq=0 distributed_first=2",
        {"freq": 4, "distributed_freq": 0, "distributed_first": 2},
        9,
    ),
    Block(
        "log_to_file with rank",
        {
            "freq": 4,
            "tag": "T",
            "log_to_file": "pplogs/log",
            "num_epochs": 2,
            "gen_heartbeat": True,
        },
        8,
        False,
        8,
    ),
]


def train(block: Block, workers: int, printer: ProgressPrinter) -> None:
    """Do what the recorded workers did, all of them in this process."""
    a = torch.ones(3, requires_grad=True)
    learner = momentum_sgd(
        [a], learning_parameter_schedule_per_sample(0.0001), momentum_schedule(0.9)
    )
    streams = [np.random.RandomState(worker) for worker in range(workers)]
    for update in range(1, block.updates + 1):
        parts = [torch.tensor(stream.rand(4, 3).astype(np.float32)) for stream in streams]
        losses = [((x @ a) + 0.5).sum() for x in parts]
        a.grad = None
        sum(losses).backward()
        loss = sum(part.item() for part in losses)
        samples = 4 * workers
        learner.update(samples)
        if workers > 1:
            printer.update_distributed(samples)
        printer.update(samples, loss, 0.25 * samples if block.has_metric else None)
        if block.summary_every and update % block.summary_every == 0:
            printer.summarize()


def without_times(lines: list[str]) -> list[str]:
    return [TIMES.sub("TIME", line) for line in lines]


def recorded(workers: int, rank: int) -> list[str]:
    lines = (GOLDEN / f"progress_{workers}worker{'s' * (workers > 1)}.txt").read_text().splitlines()
    if workers > 1:
        mark = f"[1,{rank}]<stdout>:"
        lines = [line.removeprefix(mark) for line in lines if line.startswith(mark)]
    return without_times(lines[: lines.index("CNTKCommandTrainEnd: train") + 1])


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pplogs").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("in_folder")
@pytest.mark.parametrize("workers", [1, 2])
def test_the_main_rank_prints_what_was_recorded(
    workers: int, capsys: pytest.CaptureFixture[str]
) -> None:
    for block in BLOCKS:
        printer = ProgressPrinter(**block.arguments, rank=0)
        print(f"#### {block.title}")
        train(block, workers, printer)
    printer = ProgressPrinter(4, rank=0)
    print("#### end")
    train(Block("end", {}, 4), workers, printer)
    printer.end_progress_print()
    assert without_times(capsys.readouterr().out.splitlines()) == recorded(workers, 0)


def test_another_rank_logs_to_its_file_what_was_recorded(
    in_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = recorded(2, 1)
    for block in BLOCKS[:-1]:
        printer = ProgressPrinter(**block.arguments, rank=1, log_to_file="log")
        header = len(Path("logrank1").read_text().splitlines())
        train(block, 2, printer)
        start = wanted.index(f"#### {block.title}") + 1
        end = next(
            (i for i in range(start, len(wanted)) if not is_of_block(wanted[i])), len(wanted)
        )
        lines = without_times(Path("logrank1").read_text().splitlines())[header:]
        assert lines == wanted[start:end]
    assert capsys.readouterr().out == ""


def is_of_block(line: str) -> bool:
    return not line.startswith(("####", "Redirecting", " average"))


def local_learners() -> Iterator[tuple[str, Callable[[torch.Tensor], Learner]]]:
    per_sample = learning_parameter_schedule_per_sample
    yield (
        "fsadagrad script schedules, local learner",
        lambda a: fsadagrad(
            [a], per_sample(5e-5), momentum_schedule_per_sample(0.9985724484938566)
        ),
    )
    yield "momentum_sgd numbers", lambda a: momentum_sgd([a], 0.01, 0.9)
    yield (
        "momentum_sgd minibatch_size=32",
        lambda a: momentum_sgd([a], 0.01, 0.9, minibatch_size=32),
    )


def test_rates_are_printed_as_recorded(capsys: pytest.CaptureFixture[str]) -> None:
    a = torch.ones(3, requires_grad=True)  # goes on from block to block
    for title, make in local_learners():
        learner, printer = make(a), ProgressPrinter(2)
        print(f"#### {title}")
        for _ in range(2):
            loss = (torch.ones(4, 3) @ a).sum()
            a.grad = None
            loss.backward()
            printer.log_learning_rate(learner)
            learner.update(4)
            printer.update(4, loss.item())
    lines = (GOLDEN / "progress_lr_lines.txt").read_text().splitlines()
    assert capsys.readouterr().out.splitlines() == lines[: lines.index("#### distributed")]
