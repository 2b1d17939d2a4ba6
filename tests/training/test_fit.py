"""The high-level trainer in one process; each of TensorLayer's accidents has a test here."""

import math
import threading
import time

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tutorial_lib.data.errors import DataError
from tutorial_lib.training import compilation
from tutorial_lib.training.budget import Budget
from tutorial_lib.training.callbacks import Callback, Checkpoint, EarlyStopping, WeightAverage
from tutorial_lib.training.evaluation import evaluation_mode
from tutorial_lib.training.fit import Trainer
from tutorial_lib.training.fit_state import restore_state, save_state


def data(n=53):
    stream = torch.Generator().manual_seed(n)
    x = torch.randn(n, 6, generator=stream)
    return x, (x[:, :3].argmax(dim=1) + torch.randint(2, (n,), generator=stream)) % 3


def network(dropout=0.5):
    torch.manual_seed(2)
    return nn.Sequential(
        nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(dropout), nn.Linear(16, 3)
    )


def func(net, x, y):
    logits = net(x)
    return F.cross_entropy(logits, y), {"right": (logits.argmax(1) == y).float()}


def measure(net, x, y):
    loss, logs = func(net, x, y)
    return {"loss": loss, **logs}


def trainer(net=None, **options):
    given = {
        "training_dataset": data(),
        "build_training_func": func,
        "optimizer": torch.optim.Adam,
        "optimizer_args": {"lr": 0.01},
        "batch_size": 8,
        "log_step_size": 0,
        "validation_dataset": data(29),
        "build_validation_func": measure,
        "epochs": 2,
    }
    return Trainer(net or network(), **{**given, **options})


def weights(trained):
    return {name: value.clone() for name, value in trained.training_network.state_dict().items()}


def assert_equal(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert torch.equal(value, other[name]), name


class TestWays:
    """Theirs lost train_to_end in 1.11, though its examples still name it."""

    def test_all_ways_of_training_are_one(self):
        by_method, by_loop, by_batches, validating = (trainer() for _ in range(4))
        by_method.train_to_end()
        logs = list(by_loop)
        while not by_batches.should_stop():
            by_batches.train_on_batch()
        validating.train_and_validate_to_end(3)
        assert len(logs) == by_method.global_step == 14
        for other in (by_loop, by_batches, validating):
            assert_equal(weights(by_method), weights(other))

    def test_a_step_tells_its_means_before_the_update(self):
        trained = trainer(network(dropout=0.0), batch_size=53)
        with torch.no_grad():
            loss, logs = func(network(dropout=0.0).train(), *data())
        found = trained.train_on_batch()
        assert found["loss"] == pytest.approx(loss.item(), rel=1e-5)
        assert found["right"] == pytest.approx(logs["right"].mean().item(), rel=1e-5)

    def test_after_the_end_there_is_no_step(self):
        trained = trainer()
        trained.train_to_end()
        with pytest.raises(RuntimeError, match="it ended with step 14"):
            trained.train_on_batch()

    def test_the_step_is_the_optimizers_own(self):
        options = {"optimizer": torch.optim.SGD, "optimizer_args": {"lr": 0.1, "momentum": 0.9}}
        plain = network(dropout=0.0)
        trained = trainer(network(dropout=0.0), batch_size=53, epochs=3, **options)
        trained.train_to_end()
        optimizer = torch.optim.SGD(plain.parameters(), 0.1, momentum=0.9)
        for _ in range(3):
            optimizer.zero_grad()
            func(plain, *data())[0].backward()
            optimizer.step()
        pairs = zip(trained.training_network.parameters(), plain.parameters(), strict=True)
        for ours, theirs in pairs:
            torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)

    def test_what_is_printed(self, capsys):
        trained = trainer(log_step_size=7)
        trained.train_and_validate_to_end(14)
        first, *lines = capsys.readouterr().out.splitlines()
        assert first == (
            "1 rank x 8 samples = 8 in a step, 7 steps in an epoch; learning rate 0.01"
        )
        assert [line.split(":")[0] for line in lines] == [
            "step 7 of 14",
            "step 14 of 14",
            "validation at step 14",
        ]
        assert "loss = " in lines[0]
        assert "right = " in lines[0]


class TestTheirAccidents:
    def test_prefetching_prepares_while_the_step_computes(self):
        """Theirs throws the prefetched data set away."""
        prepared = threading.Semaphore(0)

        def note(x, random):
            prepared.release()
            return x

        def slow(net, x, y):
            for _ in range(3):  # this minibatch and two more are made without us going on
                assert prepared.acquire(timeout=20)
            for _ in range(2):
                prepared.release()
            return func(net, x, y)

        trained = trainer(build_training_func=slow, batch_map=note, prefetch_size=2, epochs=1)
        for _ in range(3):
            trained.train_on_batch()
        trained.pipeline.close()

    def test_an_endless_budget_is_endless(self):
        """Theirs computes inf // n, which is nan."""
        assert math.isnan(math.inf // 2)
        budget = Budget.of(math.inf, None, 2)
        assert (budget.steps, budget.epochs) == (math.inf, 1)
        assert Budget.of(100, None, 4) == Budget(25, math.inf)
        assert Budget.of(100, 2, 3) == Budget(33, 2)
        assert budget.total_steps(7) == 7
        assert trainer(max_iteration=5).total_steps == 5

    @pytest.mark.parametrize(("max_iteration", "epochs"), [(1, None), (math.inf, 0), (0, 1)])
    def test_a_budget_of_nothing_is_refused(self, max_iteration, epochs):
        with pytest.raises(ValueError, match="max_iteration is one step"):
            Budget.of(max_iteration, epochs, 2)

    def test_reading_changes_nothing(self):
        """Reading their global_step runs hooks and eats a batch."""
        read, unread = trainer(prefetch_size=2), trainer()
        for _ in range(9):
            read.train_on_batch()
            before = read.global_step
            for name in ("global_step", "epoch", "learning_rate", "total_steps"):
                getattr(read, name)
            assert read.validation_metrics == read.validation_metrics
            assert read.global_step == before
            unread.train_on_batch()
            assert read.logs == unread.logs
        assert type(read.global_step) is int
        assert_equal(weights(read), weights(unread))
        read.pipeline.close()

    def test_validation_weighs_every_sample_alike(self):
        """Theirs averages minibatches: the last, smaller one counts too much."""
        trained = trainer(batch_size=8)
        trained.train_on_batch()
        with evaluation_mode(trained.training_network), torch.no_grad():
            loss, logs = func(trained.training_network, *data(29))
        assert trained.validation_metrics["loss"] == pytest.approx(loss.item(), rel=1e-5)
        assert trained.validation_metrics["right"] == pytest.approx(logs["right"].mean().item())

    def test_metrics_follow_the_weights(self):
        trained = trainer()
        first = trained.validation_metrics
        trained.train_on_batch()
        assert trained.validation_metrics != first

    def test_validation_leaves_each_layers_mode_alone(self):
        trained = trainer()
        trained.training_network[1].eval()  # a frozen batch normalisation
        trained.validation_metrics  # noqa: B018
        assert [m.training for m in trained.training_network] == [True, False, True, True, True]

    def test_without_validation_theirs_is_the_error(self):
        trained = trainer(validation_dataset=None)
        with pytest.raises(AttributeError, match=r"^Validation is not setup\.$"):
            trained.validation_metrics  # noqa: B018
        with pytest.raises(AttributeError, match=r"^Validation is not setup\.$"):
            trained.train_and_validate_to_end()
        assert trained.global_step == 0

    def test_arguments_stay_as_they_are(self):
        """Theirs writes the scaled rate into the caller's dict."""
        arguments = {"learning_rate": 0.01, "betas": (0.5, 0.9)}
        trained = trainer(optimizer_args=arguments)
        trained.train_on_batch()
        assert arguments == {"learning_rate": 0.01, "betas": (0.5, 0.9)}
        assert trained.learner.optimizer.param_groups[0]["betas"] == (0.5, 0.9)
        assert trained.learning_rate == 0.01

    def test_the_network_is_the_plain_one(self):
        net = network()
        assert trainer(net).training_network is net

    def test_a_measure_of_another_shape_is_explained(self):
        trained = trainer(build_training_func=lambda net, x, y: (net(x).sum(), {"z": net(x)}))
        with pytest.raises(ValueError, match=r"'z' is a mean .* shape \(8, 3\)"):
            trained.train_on_batch()


class TestResume:
    def make(self, folder=None, more=(), **options):
        average = WeightAverage(0.9)
        return trainer(
            batch_map=lambda x, random: x + 0.1 * random[:, :6],
            checkpoint_dir=folder,
            callbacks=[average, EarlyStopping(patience=100), *more],
            **options,
        ), average

    @pytest.mark.parametrize("stop_at", [1, 6, 7, 8, 13])
    @pytest.mark.parametrize("prefetch_size", [0, 2])
    def test_resuming_at_any_step_equals_no_interruption(self, tmp_path, stop_at, prefetch_size):
        whole, average = self.make()
        whole.train_and_validate_to_end(3)
        first, _ = self.make(prefetch_size=prefetch_size)
        while first.global_step < stop_at:
            first.train_on_batch()
        save_state(first, tmp_path / "checkpoint.pt")
        first.train_on_batch()  # what comes after doesn't matter
        first.pipeline.close()
        torch.manual_seed(99)
        second, second_average = self.make(tmp_path, prefetch_size=prefetch_size)
        assert second.global_step == stop_at
        second.train_and_validate_to_end(3)
        assert second.global_step == 14
        assert_equal(weights(whole), weights(second))
        assert_equal(average.weights, second_average.weights)
        assert whole.logs == second.logs

    def test_a_finished_training_is_not_repeated(self, tmp_path, capsys):
        first, _ = self.make(tmp_path)
        first.train_to_end()
        again, _ = self.make(tmp_path, log_step_size=1)
        assert again.should_stop()
        assert f"restored step 14 from {tmp_path}" in capsys.readouterr().out
        longer, _ = self.make(tmp_path, epochs=3)
        longer.train_to_end()
        assert longer.global_step == 21

    def test_a_state_of_more_ranks_is_taken_up_with_fresh_random_numbers(self, tmp_path):
        first, _ = self.make()
        first.train_on_batch()
        path = tmp_path / "checkpoint.pt"
        save_state(first, path)
        state = torch.load(path)
        state["ranks"] *= 2
        torch.save(state, path)
        second, _ = self.make(tmp_path)
        assert_equal(weights(first), weights(second))
        second.train_to_end()
        assert second.global_step == 14

    def test_saving_changes_nothing(self, tmp_path):
        saved, _ = self.make(more=[Checkpoint(tmp_path, every_steps=2)])
        plain, _ = self.make()
        saved.train_to_end()
        plain.train_to_end()
        assert_equal(weights(saved), weights(plain))
        assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.pt"]

    @pytest.mark.parametrize(
        ("content", "found"),
        [(b"", "can't read"), (b"nonsense", "can't read"), (None, "another torch")],
    )
    def test_a_damaged_file_is_explained(self, tmp_path, content, found):
        path = tmp_path / "checkpoint.pt"
        if content is None:
            torch.save({"format": "other"}, path)
        else:
            path.write_bytes(content)
        with pytest.raises(DataError, match=f"{found}.*Move it away"):
            self.make(tmp_path)

    def test_another_networks_state_is_explained(self, tmp_path):
        path = tmp_path / "checkpoint.pt"
        save_state(self.make()[0], path)
        with pytest.raises(DataError, match="Make the trainer as it was"):
            self.make(tmp_path, net=nn.Linear(6, 3))
        assert not restore_state(self.make()[0], tmp_path / "nothing")


class TestOptions:
    def test_clipping_bounds_the_whole_gradient(self):
        trained = trainer(max_gradient_norm=0.01, optimizer=torch.optim.SGD)
        before = weights(trained)
        trained.train_on_batch()
        moved = [
            (p - before[name]).norm() for name, p in trained.training_network.named_parameters()
        ]
        assert torch.stack(moved).norm().item() == pytest.approx(0.01 * 0.01, rel=1e-3)
        assert trained.learner.gradient_norm > 0.01

    def test_warm_up_reaches_the_scaled_rate(self):
        assert trainer(scaling_learning_rate="sqrt", warmup_steps=5).learning_rate == 0.01

    def test_mixed_precision_computes_in_it_and_keeps_float32_weights(self):
        seen = []

        def look(net, x, y):
            logits = net(x)
            seen.append(logits.dtype)
            return F.cross_entropy(logits.float(), y)

        trained = trainer(build_training_func=look, autocast=torch.bfloat16)
        trained.train_on_batch()
        assert seen == [torch.bfloat16]
        assert {p.dtype for p in trained.training_network.parameters()} == {torch.float32}

    def test_an_average_is_of_all_weights_since_the_start(self):
        average = WeightAverage(0.75)
        trained = trainer(callbacks=[average])
        expected = {n: p.detach().clone() for n, p in trained.training_network.named_parameters()}
        for _ in trained:
            for name, parameter in trained.training_network.named_parameters():
                expected[name] = 0.75 * expected[name] + 0.25 * parameter.detach()
        for name, value in expected.items():
            torch.testing.assert_close(average.weights[name], value)

    @pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # of torch itself
    @pytest.mark.skipif(not compilation.has_compiler(), reason="no C++ compiler")
    def test_a_compiled_network_trains_alike(self):
        net = nn.Linear(6, 3)
        twin = nn.Linear(6, 3)
        twin.load_state_dict(net.state_dict())
        compiled, plain = trainer(net, compile=True), trainer(twin)
        for one, other in zip(compiled, plain, strict=True):
            assert one["loss"] == pytest.approx(other["loss"], rel=1e-5)
        assert set(weights(compiled)) == set(weights(plain))

    def test_without_a_compiler_training_goes_on_uncompiled(self, monkeypatch):
        monkeypatch.setenv("PATH", "")
        monkeypatch.delenv("CXX", raising=False)
        with pytest.warns(UserWarning, match=r"install g\+\+ or clang\+\+"):
            trainer(compile=True).train_on_batch()

    def test_a_users_own_callback_sees_everything(self):
        class Mine(Callback):
            def __init__(self):
                self.seen = []

            def on_start(self, trainer):
                self.seen.append("start")

            def on_step(self, trainer):
                self.seen.append(trainer.global_step)
                if trainer.global_step == 4:
                    trainer.stop()

            def on_validation(self, trainer, metrics):
                self.seen.append(sorted(metrics))

            def on_end(self, trainer):
                self.seen.append("end")

        mine = Mine()
        trainer(callbacks=[mine]).train_and_validate_to_end(3)
        both = ["loss", "right"]
        assert mine.seen == ["start", 1, 2, 3, both, 4, both, "end"]

    @pytest.mark.parametrize("options", [{"batch_size": 0}, {"accumulation": 0}])
    def test_senseless_sizes_are_refused(self, options):
        with pytest.raises(ValueError, match="1 or more"):
            trainer(**options)


def test_a_request_waits_for_no_one(tmp_path):
    """The checkpoint that rank 0's clock asks for is written after the next step."""
    checkpoint = Checkpoint(tmp_path, every_s=0.01)
    trained = trainer(callbacks=[checkpoint])
    time.sleep(0.02)
    trained.train_on_batch()
    assert not checkpoint.path.exists()
    trained.train_on_batch()
    assert torch.load(checkpoint.path)["global_step"] == 2
