"""One rank of CNTK's recorded trainers with several learners; run by test_trainers.py.

Prints a line of JSON per case: its name and, for each minibatch, what ``train_minibatch``
returned, the loss average, the samples and the samples seen, or the error.
"""

import json
import sys

import numpy as np
import torch
from torch import Tensor, nn

from tutorial_lib.distributed import session
from tutorial_lib.learners.block_momentum import block_momentum_distributed_learner as block
from tutorial_lib.learners.data_parallel import data_parallel_distributed_learner as parallel
from tutorial_lib.learners.schedules import learning_parameter_schedule_per_sample
from tutorial_lib.learners.sgd import sgd
from tutorial_lib.training.trainer import Trainer


class Sums(nn.Module):
    """The recorded model: the loss of a sample is sum(a * x) + sum(b * x)."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.ones(3))
        self.b = nn.Parameter(torch.ones(3))

    def forward(self, data: Tensor) -> Tensor:
        return data @ self.a + data @ self.b


def rule(*parameters, lr=0.01):
    return sgd(parameters, learning_parameter_schedule_per_sample(lr))


def flagged(learner):
    learner.set_as_metric_aggregator()
    return learner


CASES = {
    "two_dp_no_aggregator": lambda a, b: [parallel(rule(a)), parallel(rule(b))],
    "two_dp_aggregator": lambda a, b: [flagged(parallel(rule(a))), parallel(rule(b))],
    "dist_plus_local": lambda a, b: [parallel(rule(a)), rule(b)],
    "different_distributed_after": lambda a, b: [parallel(rule(a)), parallel(rule(b), 100)],
    "bm_plus_dp": lambda a, b: [flagged(block(rule(a), 100)), parallel(rule(b))],
    "two_aggregators": lambda a, b: [flagged(parallel(rule(a))), flagged(parallel(rule(b)))],
    "single_is_aggregator": lambda a, b: [parallel(rule(a, b))],
    "distributed_after": lambda a, b: [parallel(rule(a, b), 12)],
    "lr_zero": lambda a, b: [parallel(rule(a, b, lr=0.0))],
}


def run(name: str, rank: int) -> list:
    model = Sums()
    try:
        trainer = Trainer(model, lambda net, x: net(x), CASES[name](model.a, model.b))
        stream = np.random.RandomState(rank)
        rows = []
        for _ in range(4):
            x = torch.tensor(stream.randn(4, 3).astype(np.float32))
            updated = trainer.train_minibatch(x)
            rows.append(
                [
                    updated,
                    trainer.previous_minibatch_loss_average,
                    trainer.previous_minibatch_sample_count,
                    trainer.total_number_of_samples_seen,
                ]
            )
        return rows
    except (ValueError, RuntimeError) as error:
        return [type(error).__name__, str(error)]


with session.script() as ranks:
    results = {name: run(name, ranks.rank) for name in CASES}
    if ranks.is_main:
        sys.stdout.write(json.dumps(results) + "\n")
