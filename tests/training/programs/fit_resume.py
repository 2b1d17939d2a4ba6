"""Trains a network with everything that has a state; may be killed on the way.

python fit_resume.py CHECKPOINTS OUT STEP: at STEP the last rank is killed, 0 for never. At the end
every rank writes its weights, running statistics and average to OUT.RANK.
"""

import os
import signal
import sys
from pathlib import Path

import torch
from torch import nn

from tutorial_lib.distributed import session
from tutorial_lib.training.callbacks import Callback, Checkpoint, EarlyStopping, WeightAverage
from tutorial_lib.training.fit import Trainer
from tutorial_lib.training.logs import CsvLog


class Kill(Callback):
    def __init__(self, step, is_victim):
        self.step, self.is_victim = step, is_victim

    def on_step(self, trainer):
        if self.is_victim and trainer.global_step == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


def func(net, x, y):
    logits = net(x)
    return nn.functional.cross_entropy(logits, y), {"right": (logits.argmax(1) == y).float().mean()}


def main(folder, out, step):
    folder = Path(folder)
    stream = torch.Generator().manual_seed(0)
    data = torch.randn(53, 6, generator=stream), torch.randint(3, (53,), generator=stream)
    with session.script() as ranks:
        torch.manual_seed(2)
        net = nn.Sequential(
            nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 3)
        )
        average = WeightAverage(0.9)
        trainer = Trainer(
            net,
            data,
            func,
            torch.optim.Adam,
            {"lr": 0.01},
            batch_size=12 // ranks.world_size,
            prefetch_size=2,
            checkpoint_dir=folder,
            log_step_size=0,
            validation_dataset=data,
            build_validation_func=lambda net, x, y: {"loss": func(net, x, y)[0]},
            epochs=4,
            batch_map=lambda x, random: x + 0.1 * random[:, :6],
            callbacks=[
                average,
                EarlyStopping(patience=100),
                Checkpoint(folder, every_steps=4),
                CsvLog(folder / "log.csv"),
                Kill(step, ranks.rank == ranks.world_size - 1),
            ],
        )
        trainer.train_and_validate_to_end(4)
        state = {**net.state_dict(), **{f"average {n}": w for n, w in average.weights.items()}}
        torch.save(state, f"{out}.{ranks.rank}")


main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
