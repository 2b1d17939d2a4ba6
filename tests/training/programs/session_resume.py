"""Each rank: a session without interruption; another that is cut and goes on: the same weights.

python session_resume.py FOLDER KIND...: data-parallel learners (plain, after), block momentum
(block, uneven parts), or a rank that ends the training (early).
"""

import json
import sys
from pathlib import Path

import torch
from torch import nn

from tutorial_lib.data.minibatch_source import MinibatchSource
from tutorial_lib.distributed import session
from tutorial_lib.learners.block_momentum import block_momentum_distributed_learner
from tutorial_lib.learners.data_parallel import data_parallel_distributed_learner
from tutorial_lib.learners.fsadagrad import fsadagrad
from tutorial_lib.training.trainer import Trainer
from tutorial_lib.training.training_session import (
    CheckpointConfig,
    CrossValidationConfig,
    TestConfig,
    training_session,
)

folder, kinds = Path(sys.argv[1]), sys.argv[2:]
STREAM = torch.Generator().manual_seed(0)
DATA = torch.randn(53, 6, generator=STREAM), torch.randint(3, (53,), generator=STREAM)


def make(kind, seed):
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    rule = fsadagrad(net.parameters(), lr=0.02, momentum=0.9)
    if kind in ("block", "uneven"):
        learner = block_momentum_distributed_learner(
            rule, 36, reset_sgd_momentum_after_aggregation=False
        )
    else:
        learner = data_parallel_distributed_learner(rule, 24 if kind == "after" else 0)
    return Trainer(net, criterion, learner)


def criterion(net, x, y):
    logits = net(x)
    wrong = (logits.argmax(1) != y).float()
    return nn.functional.cross_entropy(logits, y, reduction="none"), wrong


def run(kind, path, trainer, max_samples, rank):
    validations = []

    def callback(*row):
        validations.append(row)
        return not (kind == "early" and row[0] == 1 and rank == 1)

    measured = MinibatchSource(DATA, max_sweeps=1)
    training_session(
        trainer,
        MinibatchSource(DATA, seed=3),
        10 if kind == "uneven" else 12,
        {"x": "features", "y": "labels"},
        max_samples=max_samples,
        checkpoint_config=CheckpointConfig(path, 48),
        cv_config=CrossValidationConfig(measured, 30, 16, callback),
        test_config=TestConfig(measured, 16),
    ).train()
    return validations


def compare(kind, rank):
    whole, cut, resumed = make(kind, seed=1), make(kind, seed=1), make(kind, seed=2)
    path = folder / kind
    validations = run(kind, path / "whole", whole, 150, rank)
    # Ends where the uninterrupted one has a checkpoint too.
    run(kind, path / "cut", cut, 100 if kind == "uneven" else 96, rank)
    run(kind, path / "cut", resumed, 150, rank)
    weights = [
        torch.cat([p.detach().flatten() for p in trainer.training_network.parameters()])
        for trainer in (whole, resumed)
    ]
    return {
        "kind": kind,
        "weights": weights[0].tolist(),
        "is_same": torch.equal(*weights),
        "total": whole.total_number_of_samples_seen,
        "validations": validations,
    }


with session.script() as ranks:
    for kind in kinds:
        sys.stdout.write(json.dumps(compare(kind, ranks.rank)) + "\n")
