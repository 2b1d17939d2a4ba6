import pytest
import torch
from torch import nn

from tutorial_lib.learners.data_parallel import data_parallel_distributed_learner
from tutorial_lib.learners.fsadagrad import fsadagrad
from tutorial_lib.training.progress import ProgressPrinter
from tutorial_lib.training.trainer import Trainer


def squares(model, x):
    return model(x).square().sum(dim=1)


def squares_and_signs(model, x):
    y = model(x)
    return y.square().sum(dim=1), (y > 0).float().mean(dim=1)


def learner(model, lr=0.01):
    return fsadagrad(model.parameters(), lr=lr, momentum=0.9)


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.Linear(4, 3)


def test_averages_are_those_of_the_minibatch_before_its_update(model):
    x = torch.randn(5, 4)
    losses, metrics = (values.detach() for values in squares_and_signs(model, x))
    trainer = Trainer(model, squares_and_signs, learner(model))
    assert trainer.train_minibatch(x)
    assert trainer.previous_minibatch_loss_average == pytest.approx(losses.mean().item())
    assert trainer.previous_minibatch_evaluation_average == pytest.approx(metrics.mean().item())
    assert trainer.previous_minibatch_sample_count == 5
    trainer.train_minibatch(x[:2])
    assert trainer.previous_minibatch_sample_count == 2
    assert trainer.total_number_of_samples_seen == 7


def test_the_gradient_is_the_sum_over_samples_of_this_minibatch_alone(model):
    trainer = Trainer(model, squares, learner(model, lr=0.0))
    x = torch.randn(6, 4)
    trainer.train_minibatch(torch.randn(3, 4))
    trainer.train_minibatch(x)
    summed = model.weight.grad.clone()
    model.weight.grad = None
    for sample in x:
        squares(model, sample[None]).sum().backward()
    assert torch.allclose(summed, model.weight.grad, atol=1e-6)


def test_a_rate_of_zero_updates_nothing(model):
    before = model.weight.detach().clone()
    assert not Trainer(model, squares, learner(model, lr=0.0)).train_minibatch(torch.randn(2, 4))
    assert torch.equal(before, model.weight)


def test_an_empty_minibatch_is_skipped(model):
    before = model.weight.detach().clone()
    trainer = Trainer(model, squares, learner(model))
    assert not trainer.train_minibatch(torch.empty(0, 4))
    assert torch.equal(before, model.weight)
    assert trainer.previous_minibatch_sample_count == 0
    with pytest.raises(RuntimeError, match="the minibatch was empty"):
        trainer.previous_minibatch_loss_average  # noqa: B018
    assert trainer.total_number_of_samples_seen == 0


def test_several_learners_share_a_model(model):
    learners = [
        fsadagrad([model.weight], lr=0.01, momentum=0.9),
        fsadagrad([model.bias], lr=0.0, momentum=0.9),
    ]
    bias = model.bias.detach().clone()
    weight = model.weight.detach().clone()
    assert Trainer(model, squares, learners).train_minibatch(torch.randn(2, 4))
    assert torch.equal(bias, model.bias)
    assert not torch.equal(weight, model.weight)


def test_a_parameter_in_two_learners_is_refused(model):
    with pytest.raises(ValueError, match="'weight' is covered by 2 different learners"):
        Trainer(model, squares, [learner(model), learner(model)])


def test_a_strange_parameter_is_refused(model):
    with pytest.raises(
        ValueError, match=r"2 of the learner parameters.*\(2, 4\).*not part of the model"
    ):
        Trainer(model, squares, learner(nn.Linear(4, 2)))


def test_local_and_distributed_learners_do_not_mix(model):
    mixed = [
        fsadagrad([model.weight], lr=0.01, momentum=0.9),
        data_parallel_distributed_learner(fsadagrad([model.bias], lr=0.01, momentum=0.9)),
    ]
    with pytest.raises(ValueError, match="Cannot use a non-distributed learner"):
        Trainer(model, squares, mixed)


def test_alone_a_distributed_learner_acts_like_the_local_one(model):
    x = torch.randn(8, 4)
    twin = nn.Linear(4, 3)
    twin.load_state_dict(model.state_dict())
    Trainer(model, squares, learner(model)).train_minibatch(x)
    distributed = data_parallel_distributed_learner(learner(twin))
    Trainer(twin, squares, distributed).train_minibatch(x)
    assert torch.equal(model.weight, twin.weight)


def test_progress_writers_hear_of_every_minibatch(model, capsys):
    printer = ProgressPrinter(2)
    trainer = Trainer(model, squares, learner(model), [printer])
    for _ in range(4):
        trainer.train_minibatch(torch.ones(3, 4))
    trainer.summarize_training_progress()
    lines = capsys.readouterr().out.splitlines()
    spans = [line.split(":")[0].strip() for line in lines if "Minibatch[" in line]
    assert spans == ["Minibatch[   1-   2]", "Minibatch[   3-   4]"]
    assert any(line.startswith("Finished Epoch[1]") for line in lines)


def test_numbers_too_small_for_the_processor_to_be_fast_count_as_zero(model):
    torch.set_flush_denormal(False)
    tiny = torch.tensor([1e-39])
    assert tiny.mul(1).item() > 0
    Trainer(model, squares, learner(model))
    assert tiny.mul(1).item() == 0


LOSSES_WITHOUT_A_GRAPH = """
from torch import nn, ones
from tutorial_lib.distributed import session
from tutorial_lib.learners.data_parallel import data_parallel_distributed_learner
from tutorial_lib.learners.sgd import sgd
from tutorial_lib.training.trainer import Trainer

with session.script() as ranks:
    model = nn.Linear(4, 1)
    learner = data_parallel_distributed_learner(sgd(model.parameters(), lr=0.1))
    criterion = lambda model, x: model(x).detach().flatten()
    try:
        Trainer(model, criterion, learner).train_minibatch(ones(2, 4))
    except RuntimeError as error:
        print(error)
"""


@pytest.mark.mpi
def test_losses_without_a_graph_are_told_as_torch_does_on_every_rank(mpiexec):
    done = mpiexec(2, "-c", LOSSES_WITHOUT_A_GRAPH)
    assert done.stdout.count("does not require grad and does not have a grad_fn") == 2
