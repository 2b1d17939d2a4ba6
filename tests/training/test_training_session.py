import functools
import json
from pathlib import Path

import pytest
import torch
from torch import nn

from tutorial_lib.data.minibatch_source import MinibatchSource
from tutorial_lib.learners.schedules import learning_parameter_schedule
from tutorial_lib.learners.sgd import momentum_sgd, sgd
from tutorial_lib.training.progress import ProgressPrinter
from tutorial_lib.training.trainer import Trainer
from tutorial_lib.training.training_session import (
    CheckpointConfig,
    CrossValidationConfig,
    TestConfig,
    training_session,
)

PROGRAM = Path(__file__).parent / "programs" / "session_resume.py"
STREAMS = {"x": "features", "y": "labels"}
SAMPLES = 23


def data():
    stream = torch.Generator().manual_seed(0)
    return torch.randn(SAMPLES, 4, generator=stream), torch.randint(3, (SAMPLES,), generator=stream)


def criterion(net, x, y):
    logits = net(x)
    wrong = (logits.argmax(1) != y).float()
    return nn.functional.cross_entropy(logits, y, reduction="none"), wrong


def make(writers=(), seed=0):
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3))
    return Trainer(net, criterion, momentum_sgd(net.parameters(), 0.01, 0.9), writers)


def session(trainer, source=None, mb_size=10, **arguments):
    return training_session(
        trainer, source or MinibatchSource(data()), mb_size, STREAMS, **arguments
    )


def mean_error(net):
    net.eval()
    x, y = data()
    return (net(x).argmax(1) != y).double().mean().item()


def all_of(net):
    return torch.cat([value.flatten().double() for value in net.state_dict().values()])


class Recorder:
    """A callback that remembers what it was told, and says stop after so many calls."""

    def __init__(self, calls=1000):
        self.calls, self.rows = calls, []

    def __call__(self, *row):
        self.rows.append(row)
        return len(self.rows) < self.calls


def test_the_last_minibatch_is_what_is_left(monkeypatch):
    trainer, sizes = make(), []
    train = trainer.train_minibatch
    monkeypatch.setattr(
        trainer, "train_minibatch", lambda **named: sizes.append(len(named["x"])) or train(**named)
    )
    session(trainer, max_samples=37).train()
    assert sizes == [10, 10, 10, 7]
    assert trainer.total_number_of_samples_seen == 37
    assert trainer.previous_minibatch_sample_count == 7


def test_a_source_may_end_the_training():
    trainer = make()
    session(trainer, MinibatchSource(data(), max_sweeps=2)).train()
    assert trainer.total_number_of_samples_seen == 2 * SAMPLES


@pytest.mark.parametrize(
    ("max_samples", "frequency", "at"),
    [
        (60, 20, [20, 40, 60]),
        (50, 20, [20, 40, 50]),  # what is left over at the end
        (30, 7, [10, 20, 30]),  # not twice for one minibatch
        (30, None, [30]),
        (30, 0, []),
    ],
)
def test_actions_are_done_when_the_total_has_crossed_their_frequency(max_samples, frequency, at):
    trainer, totals = make(), []

    def callback(*row):
        totals.append(trainer.total_number_of_samples_seen)
        return True

    config = CrossValidationConfig(frequency=frequency, callback=callback)
    session(trainer, max_samples=max_samples, cv_config=config).train()
    assert totals == at


def test_a_cross_validation_measures_all_and_changes_nothing(capsys):
    source = MinibatchSource(data(), randomize=False, max_sweeps=1)
    recorder, trainer = Recorder(), make([ProgressPrinter()])
    config = CrossValidationConfig(source, 20, 5, recorder)
    session(trainer, max_samples=60, cv_config=config).train()
    assert [row[0] for row in recorder.rows] == [0, 1, 2]
    assert [row[2:] for row in recorder.rows] == [(SAMPLES, 5)] * 3
    unwatched = make()
    session(unwatched, max_samples=60).train()
    assert torch.equal(all_of(unwatched.training_network), all_of(trainer.training_network))
    error = mean_error(trainer.training_network)
    assert recorder.rows[-1][1] == pytest.approx(error)
    lines = [line for line in capsys.readouterr().out.splitlines() if "Evaluation" in line]
    assert lines[2] == (
        f"Finished Evaluation [3]: Minibatch[1-5]: metric = {100 * error:0.2f}% * {SAMPLES};"
    )


def test_a_callback_may_end_the_training():
    recorder, trainer = Recorder(calls=2), make()
    config = CrossValidationConfig(frequency=20, callback=recorder)
    session(trainer, max_samples=100, cv_config=config).train()
    assert trainer.total_number_of_samples_seen == 40
    assert recorder.rows == [(0, 0.0, 0, 0), (1, 0.0, 0, 0)]


def test_progress_and_test_are_written(capsys):
    trainer = make([ProgressPrinter(num_epochs=2)])
    tested = TestConfig(MinibatchSource(data(), max_sweeps=1), minibatch_size=10)
    session(trainer, progress_frequency=20, max_samples=40, test_config=tested).train()
    lines = capsys.readouterr().out.splitlines()
    begins = ["Finished Epoch[1 of 2]: loss", "Finished Epoch[2 of 2]: loss"]
    begins.append("Finished Evaluation [1]: Minibatch[1-3]: metric")
    ours = [line for line in lines if line.startswith("Finished")]
    assert all(map(str.startswith, ours, begins))
    assert ours[-1].endswith(f"% * {SAMPLES};")
    assert len(ours) == 3


def test_an_interrupted_training_goes_on_bit_for_bit(tmp_path):
    """Sample order, momenta, dropout and running statistics, through a crash between two saves."""
    measured = MinibatchSource(data(), max_sweeps=1)

    def run(trainer, max_samples, path, callback=None):
        session(
            trainer,
            max_samples=max_samples,
            checkpoint_config=CheckpointConfig(path, 20),
            cv_config=CrossValidationConfig(measured, 10, callback=callback),
        ).train()

    def crash(index, *rest):
        if index == 4:
            raise KeyboardInterrupt
        return True

    whole = make()
    run(whole, 75, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run(make(), 75, tmp_path / "cut", crash)
    resumed, calls = make(seed=1), Recorder()
    run(resumed, 75, tmp_path / "cut", calls)
    assert torch.equal(all_of(whole.training_network), all_of(resumed.training_network))
    assert resumed.total_number_of_samples_seen == 75
    assert [row[0] for row in calls.rows] == [4, 5, 6, 7]  # from 40 on
    again = make(seed=2)
    run(again, 75, tmp_path / "cut")  # which is at its end
    assert torch.equal(all_of(whole.training_network), all_of(again.training_network))


def test_all_checkpoints_are_kept_on_request(tmp_path):
    config = CheckpointConfig(tmp_path / "ck", 20, preserve_all=True)
    whole = make()
    session(whole, max_samples=50, checkpoint_config=config).train()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ck", "ck0", "ck1", "ck2"]
    (tmp_path / "ck").unlink()
    (tmp_path / "ck2").unlink()  # the newest left is that of 40 samples
    again = make(seed=1)
    session(again, max_samples=50, checkpoint_config=config).train()
    assert torch.equal(all_of(whole.training_network), all_of(again.training_network))
    afresh = make(seed=1)
    config = CheckpointConfig(tmp_path / "ck", 20, restore=False)
    session(afresh, max_samples=50, checkpoint_config=config).train()
    assert not torch.equal(all_of(whole.training_network), all_of(afresh.training_network))


def test_schedules_by_sweeps_follow_the_source():
    net = nn.Linear(4, 3)
    learner = sgd(net.parameters(), learning_parameter_schedule([0.1, 0.01, 0.001]))
    trainer = Trainer(net, criterion, learner)
    rates = []
    for sweeps in (1, 2, 3):
        session(trainer, mb_size=SAMPLES, max_samples=sweeps * SAMPLES).train()
        rates.append(learner.learning_rate())
    assert rates == [0.01, 0.001, 0.001]


def test_what_would_never_end_is_refused():
    endless = MinibatchSource(data())
    with pytest.raises(ValueError, match="max_sweeps=1"):
        session(make(), test_config=TestConfig(endless))
    with pytest.raises(ValueError, match="max_sweeps=1"):
        session(make(), cv_config=CrossValidationConfig(endless))
    measured = Recorder()
    config = CrossValidationConfig(endless, callback=measured, max_samples=40)
    session(make(), max_samples=10, cv_config=config).train()
    assert measured.rows[0][2:] == (40, 2)


def test_an_unknown_stream_is_named():
    trainer = make()
    broken = training_session(trainer, MinibatchSource(data()), 10, {"x": "pictures"})
    with pytest.raises(ValueError, match=r"stream 'pictures' for 'x'.*'features'"):
        broken.train()


@pytest.mark.parametrize("name", ["max_samples", "progress_frequency"])
def test_negative_numbers_are_refused(name):
    with pytest.raises(ValueError, match="number of samples"):
        session(make(), **{name: -1})


def test_a_trainer_without_metric_cannot_test():
    net = nn.Linear(4, 3)
    learner = sgd(net.parameters(), 0.1)
    trainer = Trainer(net, lambda net, x: net(x).sum(1), learner)
    with pytest.raises(ValueError, match="Cannot test when no evaluation function"):
        trainer.test_minibatch(data()[0])


KINDS = {1: ["plain"], 2: ["plain", "after", "block", "early"], 3: ["uneven"], 4: ["block"]}


@pytest.fixture(scope="module")
def on_ranks(mpiexec, tmp_path_factory):
    """``on_ranks(n, kind)``: what each rank of a session did; those of n ranks run together."""

    @functools.cache
    def run(n):
        folder = tmp_path_factory.mktemp("sessions")
        return mpiexec(n, PROGRAM, folder, *KINDS[n], timeout_s=200).stdout.splitlines()

    return lambda n, kind: [row for row in map(json.loads, run(n)) if row["kind"] == kind]


@pytest.mark.mpi
@pytest.mark.timeout(240)
@pytest.mark.parametrize(("n", "kind"), [(n, kind) for n, kinds in KINDS.items() for kind in kinds])
def test_ranks_agree_and_a_resumed_session_is_the_uninterrupted_one(on_ranks, n, kind):
    rows = on_ranks(n, kind)
    assert len(rows) == n
    for row in rows:
        assert row["is_same"] or kind == "early", "resumed as uninterrupted, on each rank"
        assert row["total"] == (60 if kind == "early" else 150)
        assert row["weights"] == rows[0]["weights"]
        assert row["validations"] == rows[0]["validations"]
    assert {samples for *_, samples, _ in rows[0]["validations"]} == {53}


@pytest.mark.mpi
@pytest.mark.timeout(480)
@pytest.mark.parametrize("kind", ["plain", "after"])
def test_the_number_of_ranks_does_not_matter(on_ranks, kind):
    one, two = on_ranks(1, "plain")[0], on_ranks(2, kind)[0]
    assert one["weights"] == pytest.approx(two["weights"], abs=1e-5)
    assert one["validations"] == two["validations"]
