"""Each rank: open the session twice, sum gradients of unequal parts, close it."""

import sys

import pytest
import torch
import torch.distributed as dist

from tutorial_lib.distributed import session
from tutorial_lib.distributed.data_parallel import data_parallel, unwrap

backend = sys.argv[1] if len(sys.argv) > 1 else None
with session.script(backend) as ranks:
    assert session.start() is ranks, "starting twice must give the same session"
    if ranks.world_size > 1:
        with pytest.raises(ValueError, match=r"call session\.stop\(\) on every rank first"):
            session.start("no such backend")
    torch.manual_seed(ranks.rank)  # unequal weights: rank 0's must win
    model = torch.nn.Linear(3, 2)
    wrapper = data_parallel(model)
    assert unwrap(wrapper) is model
    wrapper(torch.full((ranks.rank, 3), float(ranks.rank))).sum().backward()
    expected = float(sum(rank * rank for rank in range(ranks.world_size)))
    assert model.weight.grad is not None
    assert model.weight.grad.tolist() == [[expected] * 3] * 2, model.weight.grad
    del wrapper
    model.zero_grad()
    data_parallel(model)(torch.ones(1, 3)).sum().backward()  # a wrapper that nobody else holds
    assert model.weight.grad.tolist() == [[float(ranks.world_size)] * 3] * 2, model.weight.grad
    same = model.weight.detach().clone()
    if ranks.world_size > 1:
        dist.broadcast(same, 0)
    assert torch.equal(same, model.weight)
    total = ranks.all_reduce_sum(torch.ones(1))
    assert total.item() == ranks.world_size
    ranks.barrier()
    sys.stdout.write(f"ok {ranks.rank} of {ranks.world_size} by {ranks.topology.launcher}\n")
assert session.current() is None
assert not dist.is_initialized()
