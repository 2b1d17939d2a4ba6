"""Tensors of more than 2 GiB, and of more elements than an int counts."""

import sys

import torch
import torch.distributed as dist

from tutorial_lib.distributed import session

COUNT = (1 << 31) + (1 << 27)  # bytes: 2.1 GiB

with session.script() as ranks:
    rank, size = ranks.rank, ranks.world_size
    tensor = torch.full((COUNT,), rank + 1, dtype=torch.uint8)
    dist.all_reduce(tensor)
    total = size * (size + 1) // 2
    assert int(tensor[0]) == int(tensor[-1]) == total
    assert bool(tensor.eq(total).all())
    tensor.fill_(rank + 1)
    dist.broadcast(tensor, size - 1)
    assert bool(tensor.eq(size).all())
    if rank == 0:
        tensor.fill_(7)
        dist.send(tensor, 1)
    elif rank == 1:
        dist.recv(tensor, 0)
        assert bool(tensor.eq(7).all())
    del tensor
    part = torch.full((COUNT // size,), rank, dtype=torch.uint8)
    together = torch.empty(COUNT // size * size, dtype=torch.uint8)
    dist.all_gather_into_tensor(together, part)
    assert all(bool(chunk.eq(r).all()) for r, chunk in enumerate(together.chunk(size)))
    dist.reduce_scatter_tensor(part, together)
    assert bool(part.eq(rank * size).all())
    sys.stdout.write(f"ok {rank}\n")
