"""The same training whatever started it; each rank tells its losses, and how it was started.

Usage: launched.py [BACKEND], or launched.py spawn PORT, which starts two ranks itself.
"""

import json
import os
import sys

import torch
import torch.multiprocessing as mp

from tutorial_lib.distributed import session
from tutorial_lib.training.basic_gan import GanConfig, train_gan


def train(backend: str | None = None) -> None:
    with session.script(backend) as ranks:
        torch.set_num_threads(1)
        # 101 images don't divide; the matrix product is pinned, since processes could choose two
        config = GanConfig(num_minibatches=3, minibatch_size=101, matrix_product="mkl")
        losses = [record.loss_average for record in train_gan(config, is_verbose=False).losses]
        how = [ranks.topology.launcher, ranks.backend, ranks.topology.local_world_size]
        told = {"rank": ranks.rank, "how": how, "losses": losses}
        sys.stdout.write(json.dumps(told) + "\n")


def spawned(rank: int, port: str) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2"}
    train()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["spawn", port]:
            mp.spawn(spawned, (port,), nprocs=2)
        case arguments:
            train(*arguments)
