"""Ways for a program on ranks to end: none may hang, abort or leave the others waiting."""

import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from mpi4py import MPI

from tutorial_lib.distributed import mpi_backend
from tutorial_lib.distributed.mpi_store import Store

mpi_backend.register()
how = sys.argv[1]
RANK, SIZE = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
limit = timedelta(seconds=60)
dist.init_process_group("mpi4py", store=Store(), rank=RANK, world_size=SIZE, timeout=limit)
subgroup = dist.new_group([0, SIZE - 1])
dist.all_reduce(torch.ones(1 << 20))
match how:
    case "in order":
        dist.destroy_process_group()
    case "without destroying":
        pass
    case "with work under way":
        if RANK == 0:
            work = dist.all_reduce(torch.ones(1 << 20), async_op=True)
            future = dist.barrier(async_op=True).get_future()
            sending = dist.isend(torch.ones(1 << 20), SIZE - 1)
            receiving = dist.irecv(torch.ones(1 << 20), SIZE - 1)
    case "destroyed with work under way":
        if RANK == 0:
            work = dist.all_reduce(torch.ones(1 << 20), async_op=True)
            dist.destroy_process_group()
    case "after an error on one rank":
        if RANK == SIZE - 1:
            raise ValueError("out of paper")
        dist.group.WORLD.set_timeout(timedelta(seconds=2))
        dist.all_reduce(torch.ones(3))
    case "in a subgroup only":
        if RANK in (0, SIZE - 1):
            dist.destroy_process_group(subgroup)
sys.stdout.write(f"end {RANK}\n")
