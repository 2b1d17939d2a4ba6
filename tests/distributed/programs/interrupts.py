"""Interrupts at random moments of training: each time all ranks leave, start over, and agree.

What the kernel's control channel will do, a thread does here: it hears that a rank was interrupted
and cancels what this one waits for.
"""

import os
import random
import signal
import sys
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from mpi4py import MPI
from torch.nn.parallel import DistributedDataParallel

from tutorial_lib.distributed import mpi_backend
from tutorial_lib.distributed.mpi_errors import CollectiveCancelledError
from tutorial_lib.distributed.mpi_store import Store

WORLD = MPI.COMM_WORLD
RANK, SIZE = WORLD.rank, WORLD.size


def cancel_when_told(rounds: int) -> None:
    for _ in range(rounds):
        while not WORLD.iprobe(0, 7):
            time.sleep(0.001)
        WORLD.recv(source=0, tag=7)
        mpi_backend.cancel("rank 0 was interrupted")


def main(rounds: int) -> None:
    mpi_backend.register()
    dist.init_process_group(
        "mpi4py", store=Store(), rank=RANK, world_size=SIZE, timeout=timedelta(seconds=30)
    )
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(30, 40), torch.nn.Linear(40, 5))
    ddp = DistributedDataParallel(model, bucket_cap_mb=0.001)
    if RANK != 0:
        threading.Thread(target=cancel_when_told, args=(rounds,), daemon=True).start()
    worst_s = 0.0
    for number in range(rounds):
        sent_s = 0.0
        try:
            if RANK == 0:
                delay_s = random.Random(number).uniform(0, 0.05)
                threading.Timer(delay_s, os.kill, (os.getpid(), signal.SIGINT)).start()
            while True:
                ddp(torch.ones(2, 30)).sum().backward()
                dist.all_reduce(torch.ones(1 << (number % 18)))
        except CollectiveCancelledError:
            pass
        except (KeyboardInterrupt, RuntimeError) as error:
            # It can strike in the few lines of Python that DDP's C++ calls, which renames it.
            if RANK != 0 or "KeyboardInterrupt" not in repr(error):
                raise
            sent_s = time.perf_counter()
            for rank in range(1, SIZE):
                WORLD.send(None, rank, 7)
        WORLD.Barrier()
        mpi_backend.renew()
        if sent_s:
            worst_s = max(worst_s, time.perf_counter() - sent_s)
        ddp.reducer._reset_state()
        ddp.zero_grad()
        ddp(torch.full((2, 30), float(RANK))).sum().backward()
        for parameter in ddp.parameters():
            mine = parameter.grad.clone()
            dist.all_reduce(mine)
            assert torch.equal(mine, parameter.grad * SIZE)
        WORLD.Barrier()  # the next interrupt must find all ranks in the next round
    dist.destroy_process_group()
    if RANK == 0:
        sys.stdout.write(f"ok: {rounds} interrupts, at most {worst_s:.3f} s until all went on\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
