"""Each rank: train, save, train on; then restore and train on again: the same losses.

With a file that exists, only restore it (perhaps on another number of ranks) and train on.
Kind "full": rank 0's disk is full at the second save; every rank says what it was told.
"""

import json
import os
import sys
from pathlib import Path

import torch
from torch import nn

from tutorial_lib.data.partition import partition_bounds
from tutorial_lib.distributed import session
from tutorial_lib.learners.block_momentum import block_momentum_distributed_learner
from tutorial_lib.learners.data_parallel import data_parallel_distributed_learner
from tutorial_lib.learners.fsadagrad import fsadagrad
from tutorial_lib.training.fit import Trainer as Fit
from tutorial_lib.training.fit_state import save_state
from tutorial_lib.training.trainer import Trainer

path, kind = Path(sys.argv[1]), sys.argv[2]


def make(seed):
    torch.manual_seed(seed)
    model = nn.Linear(6, 3)
    rule = fsadagrad(model.parameters(), lr=0.01, momentum=0.9)
    learner = {
        "plain": lambda: data_parallel_distributed_learner(rule),
        "one_bit": lambda: data_parallel_distributed_learner(rule, num_quantization_bits=1),
        "block": lambda: block_momentum_distributed_learner(rule, 24),
        "full": lambda: data_parallel_distributed_learner(rule),
    }[kind]()
    return Trainer(model, lambda net, x: net(x).square().sum(dim=1), learner)


def full_disk(file):
    raise OSError(28, "No space left on device")


with session.script() as ranks:

    def train(trainer, steps):
        losses = []
        for step in steps:
            whole = torch.randn(12, 6, generator=torch.Generator().manual_seed(step))
            start, stop = partition_bounds(12, ranks.world_size, ranks.rank)
            trainer.train_minibatch(whole[start:stop])
            losses.append(trainer.previous_minibatch_loss_average)
        return losses

    if kind == "full":
        results, trainer = {"told": []}, make(seed=1)
        fit = Fit(
            nn.Linear(6, 3),
            (torch.randn(12, 6), torch.randn(12, 3)),
            lambda net, x, y: (net(x) - y).square().mean(),
            torch.optim.SGD,
            {"lr": 0.01},
            log_step_size=0,
        )
        saves = {
            "trainer": trainer.save_checkpoint,
            "fit": lambda path: save_state(fit, path),
        }
        for name, save in saves.items():
            file = path.with_name(name)
            save(file)
            before = file.read_bytes()
            if ranks.is_main:
                os.fsync, working = full_disk, os.fsync
            try:
                save(file)
            except OSError as error:
                results["told"].append(str(error))
            if ranks.is_main:
                os.fsync = working
            assert file.read_bytes() == before
        external = None
    elif path.exists():
        trainer = make(seed=99)
        external = trainer.restore_from_checkpoint(path)
        results = {"external": external, "resumed": train(trainer, range(5, 9))}
    else:
        trainer = make(seed=1)
        train(trainer, range(5))
        trainer.save_checkpoint(path, {"rank": ranks.rank, "place": torch.arange(3)})
        seen = trainer.total_number_of_samples_seen
        results = {"seen": seen, "uninterrupted": train(trainer, range(5, 9))}
        again = make(seed=2)
        external = again.restore_from_checkpoint(path)
        assert external["rank"] == ranks.rank
        assert again.total_number_of_samples_seen == seen
        assert again._samples_at_last_sync == seen, "the next one would report all samples anew"
        results["resumed"] = train(again, range(5, 9))
        for mine, theirs in zip(
            trainer.training_network.parameters(), again.training_network.parameters(), strict=True
        ):
            assert torch.equal(mine, theirs)
        external = None
    results["external"] = None if external is None else external["rank"]
    sys.stdout.write(json.dumps({"of": ranks.rank, **results}) + "\n")
