"""What the recorded lines in tests/fidelity leave open."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tutorial_lib.learners.data_parallel import data_parallel_distributed_learner
from tutorial_lib.learners.schedules import learning_parameter_schedule_per_sample
from tutorial_lib.learners.sgd import momentum_sgd, sgd
from tutorial_lib.training import progress
from tutorial_lib.training.progress import ProgressPrinter

Capture = pytest.CaptureFixture[str]


def lines(capsys: Capture) -> list[str]:
    return capsys.readouterr().out.splitlines()


def feed(printer: ProgressPrinter, updates: int, samples: int = 4, loss: float = 2.0) -> None:
    for _ in range(updates):
        printer.update(samples, loss * samples, 0.5 * samples)


def test_windows_are_weighted_by_their_samples(capsys: Capture) -> None:
    printer = ProgressPrinter(2)
    printer.update(1, 1.0)
    printer.update(3, 9.0)
    assert lines(capsys) == [" Minibatch[   1-   2]: loss = 2.500000 * 4, metric = 0.00% * 4;"]


def test_without_a_frequency_only_summaries_are_printed(capsys: Capture) -> None:
    printer = ProgressPrinter()
    feed(printer, 100)
    assert lines(capsys) == []
    printer.summarize()
    (line,) = lines(capsys)
    assert line.startswith("Finished Epoch[1]: loss = 2.000000 * 400, metric = 50.00% * 400 ")


def test_the_first_updates_are_printed_too(capsys: Capture) -> None:
    feed(ProgressPrinter(100, first=3), 10)
    assert [line[:21] for line in lines(capsys)] == [
        " Minibatch[   1-   1]",
        " Minibatch[   2-   2]",
        " Minibatch[   3-   3]",
    ]


def test_an_empty_minibatch_is_no_update(capsys: Capture) -> None:
    printer = ProgressPrinter(2)
    feed(printer, 1)
    printer.update(0, 0.0)
    assert lines(capsys) == []
    feed(printer, 1)
    assert len(lines(capsys)) == 1


def test_a_geometric_schedule_starts_again_after_a_summary(capsys: Capture) -> None:
    printer = ProgressPrinter(0)
    assert len(lines(capsys)) == 3
    feed(printer, 7)
    printer.summarize()
    feed(printer, 3)
    assert [int(line.split()[-1]) for line in lines(capsys)] == [4, 12, 28, 4, 12]


def test_a_summary_of_nothing_is_zeros(capsys: Capture) -> None:
    ProgressPrinter(tag="T").summarize()
    (line,) = lines(capsys)
    assert line.startswith("Finished Epoch[1]: [T] loss = 0.000000 * 0, metric = 0.00% * 0 0.0")
    assert line.endswith("(  0.0 samples/s);")


def test_tests_are_printed_apart_from_training(capsys: Capture) -> None:
    printer = ProgressPrinter(1000, test_freq=2, test_first=1)
    feed(printer, 3)
    for _ in range(4):
        printer.update_test(8, 2.0)
    printer.summarize_test()
    printer.update_test(8, 2.0)
    printer.summarize_test()
    assert lines(capsys) == [
        " Evaluation Minibatch[   1-   1]: metric = 25.00% * 8;",
        " Evaluation Minibatch[   2-   2]: metric = 25.00% * 8;",
        " Evaluation Minibatch[   3-   4]: metric = 25.00% * 16;",
        "Finished Evaluation [1]: Minibatch[1-4]: metric = 25.00% * 32;",
        " Evaluation Minibatch[   1-   1]: metric = 25.00% * 8;",
        "Finished Evaluation [2]: Minibatch[1-1]: metric = 25.00% * 8;",
    ]


def test_tests_may_go_by_a_geometric_schedule(capsys: Capture) -> None:
    printer = ProgressPrinter(test_freq=0, metric_is_pct=False)
    for _ in range(3):
        printer.update_test(8, 2.0)
    printer.summarize_test()
    assert lines(capsys) == [
        f" {'':8}   {'':8}       0.25       0.25             8",
        f" {'':8}   {'':8}       0.25       0.25            24",
        "Finished Evaluation [1]: Minibatch[1-3]: metric = 0.250000 * 24;",
    ]


def test_only_the_main_rank_prints(capsys: Capture, tmp_path: Path) -> None:
    for rank in range(3):
        printer = ProgressPrinter(
            1, rank=rank, gen_heartbeat=True, log_to_file=tmp_path / "log" if rank == 2 else None
        )
        feed(printer, 2)
    # The heartbeat comes after the first update's line.
    assert [line[:8] for line in lines(capsys)] == [" Minibat", "PROGRESS", " Minibat"]
    assert not (tmp_path / "logrank0").exists()
    assert len((tmp_path / "logrank2").read_text().splitlines()) == 4 + 2


def test_a_log_file_has_cntks_lines(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "log"
    file.write_text("of an earlier run\n")
    printer = ProgressPrinter(1, log_to_file=file, rank=0, num_epochs=2)
    feed(printer, 1)
    printer.log("mine")
    printer.end_progress_print("done")
    assert (tmp_path / "logrank0").read_text().splitlines() == [
        f"{file}rank0",
        "CNTKCommandTrainInfo: train : 2",
        "CNTKCommandTrainInfo: CNTKNoMoreCommands_Total : 2",
        "CNTKCommandTrainBegin: train",
        " Minibatch[   1-   1]: loss = 2.000000 * 4, metric = 50.00% * 4;",
        "mine",
        "CNTKCommandTrainEnd: train",
        "done",
    ]
    assert lines(capsys) == [f"Redirecting log to file {file}rank0"]
    assert file.read_text() == "of an earlier run\n"


def test_epochs_default_to_300_in_a_log_file(tmp_path: Path) -> None:
    ProgressPrinter(log_to_file=tmp_path / "log")
    assert "CNTKCommandTrainInfo: train : 300" in (tmp_path / "log").read_text().splitlines()


def test_a_heartbeat_comes_at_most_every_ten_seconds(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter((0.0, 5.0, 10.0, 10.5, 20.0, 21.0))
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    printer = ProgressPrinter(gen_heartbeat=True)
    beats = []
    for _ in range(6):
        printer.update(1, 1.0)
        beats.append(len(lines(capsys)))
    assert beats == [1, 0, 0, 1, 0, 1]


def test_synchronisations_are_counted(capsys: Capture) -> None:
    printer = ProgressPrinter(distributed_freq=2)
    for samples in (8, 8, 6):
        printer.update_distributed(samples)
    assert lines(capsys) == ["Distributed training: #Syncs elapsed = 2, #Samples elapsed = 16"]


def test_rates_are_printed_when_they_change(capsys: Capture) -> None:
    weight = torch.zeros(2, requires_grad=True)
    schedule = learning_parameter_schedule_per_sample([0.5, 0.25], epoch_size=8)
    learner, printer = momentum_sgd([weight], schedule, 0.9), ProgressPrinter()
    for _ in range(4):
        weight.grad = torch.ones(2)
        printer.log_learning_rate(learner)
        learner.update(4)
    assert lines(capsys) == [
        "Learning rate per 1 samples: 0.5",
        "Momentum per minibatch: 0.9",
        "Learning rate per 1 samples: 0.25",
    ]


def test_each_learner_and_printer_has_its_say_but_distributed_ones(capsys: Capture) -> None:
    learners = [sgd([torch.zeros(1, requires_grad=True)], 0.5) for _ in range(2)]
    distributed = data_parallel_distributed_learner(learners[0])
    for _ in range(2):
        printer = ProgressPrinter()
        printer.log_learning_rate(distributed)
        assert lines(capsys) == []
        printer.log_learning_rate(*learners)
        printer.log_learning_rate(*learners)
        assert lines(capsys) == ["Learning rate per minibatch: 0.5"] * 2


def test_a_rate_of_zero_hides_the_momentum_as_in_cntk(capsys: Capture) -> None:
    ProgressPrinter().log_learning_rate(
        momentum_sgd([torch.zeros(1, requires_grad=True)], 0.0, 0.9)
    )
    assert lines(capsys) == ["Learning rate per minibatch: 0.0"]


@pytest.mark.parametrize("name", ["freq", "test_freq", "distributed_freq"])
def test_a_negative_frequency_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="None"):
        ProgressPrinter(**{name: -1})
