"""What trains over a process group, over MPI and over gloo: the weights must come out the same."""

import copy
import sys
import tempfile
import warnings
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from checks import run_checks
from mpi4py import MPI
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from tutorial_lib.distributed import mpi_backend
from tutorial_lib.distributed.mpi_store import Store

warnings.filterwarnings("error")
warnings.filterwarnings("ignore", category=FutureWarning)
warnings.filterwarnings("ignore", message="TypedStorage is deprecated")

RANK, SIZE = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
STEPS = 4

Group = dist.ProcessGroup
Weights = list[torch.Tensor]


class Model(nn.Module):
    """Some layers, of which a forward uses one or the other."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.first = nn.Linear(12, 24)
        self.norm = nn.BatchNorm1d(24)
        self.left = nn.Linear(24, 5)
        self.right = nn.Linear(24, 5)

    def forward(self, inputs: torch.Tensor, side: str = "both") -> torch.Tensor:
        hidden = torch.relu(self.norm(self.first(inputs)))
        if side == "both":
            return self.left(hidden) + self.right(hidden)
        return getattr(self, side)(hidden)


def inputs(step: int, rows: int = 6) -> torch.Tensor:
    return torch.randn(rows, 12, generator=torch.Generator().manual_seed(100 * step + RANK))


def train(model: nn.Module, steps: int = STEPS, **forward: Any) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for step in range(steps):
        optimizer.zero_grad()
        model(inputs(step), **forward).square().mean().backward()
        optimizer.step()


def same_on_both(run: Callable[[Group], Weights], tolerance: float = 1e-6) -> None:
    """Train over MPI and over gloo; the weights agree, and over MPI on all ranks bit for bit."""
    over_mpi, over_gloo = run(dist.group.WORLD), run(gloo)
    torch.testing.assert_close(over_mpi, over_gloo, rtol=tolerance, atol=tolerance)
    same_on_all_ranks(over_mpi)


def same_on_all_ranks(weights: Weights) -> None:
    for mine in weights:
        first = mine.clone()
        dist.broadcast(first, 0)
        assert torch.equal(first, mine)


def synced(model: nn.Module) -> Weights:
    """Weights only: the running statistics of BatchNorm are each rank's own after a step."""
    return [parameter.detach().clone() for parameter in model.parameters()]


def ddp_trains() -> None:
    for options in (
        {},
        {"bucket_cap_mb": 0.001},
        {"gradient_as_bucket_view": True},
        {"static_graph": True, "bucket_cap_mb": 0.001},
        {"broadcast_buffers": False},
    ):

        def run(group: Group, options: dict[str, Any] = options) -> Weights:
            ddp = DistributedDataParallel(Model(), process_group=group, **options)
            train(ddp)
            return synced(ddp)

        same_on_both(run)


def ddp_finds_unused_parameters() -> None:
    def run(group: Group) -> Weights:
        ddp = DistributedDataParallel(Model(), process_group=group, find_unused_parameters=True)
        train(ddp, side="left" if RANK % 2 else "right")  # other ones on other ranks
        return synced(ddp)

    same_on_both(run)


def ddp_accumulates_without_sync() -> None:
    def run(group: Group) -> Weights:
        ddp = DistributedDataParallel(Model(), process_group=group, broadcast_buffers=False)
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
        for step in range(STEPS):
            optimizer.zero_grad()
            begun = dist.group.WORLD.sequence
            with ddp.no_sync():
                ddp(inputs(2 * step)).square().mean().backward()
            if step > 1:  # before, DDP fits its buckets to the order of the gradients
                assert dist.group.WORLD.sequence == begun
            ddp(inputs(2 * step + 1)).square().mean().backward()
            optimizer.step()
        return synced(ddp)

    same_on_both(run)


def ddp_copies_buffers_from_rank_0() -> None:
    ddp = DistributedDataParallel(Model())
    train(ddp, steps=3)
    expected = [buffer.clone() for buffer in ddp.module.buffers()]
    for buffer in expected:
        dist.broadcast(buffer, 0)
    ddp._sync_buffers()
    assert all(map(torch.equal, ddp.module.buffers(), expected))


def ddp_runs_communication_hooks() -> None:
    def sum_of_all(group: Group, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        work = dist.all_reduce(bucket.buffer(), group=group, async_op=True)
        return work.get_future().then(lambda done: done.value()[0])

    def power(group: Group) -> powerSGD_hook.PowerSGDState:
        return powerSGD_hook.PowerSGDState(group, 2, start_powerSGD_iter=2)

    hooks: list[tuple[Callable[[Group], object], Any, float, float]] = [
        (lambda group: group, default_hooks.allreduce_hook, 0.001, 1e-6),
        (lambda group: group, sum_of_all, 0.001, 1e-6),
        (lambda group: group, default_hooks.fp16_compress_hook, 0.001, 2e-3),
        (power, powerSGD_hook.powerSGD_hook, 25, 1e-5),
    ]
    for make_state, hook, bucket_mb, tolerance in hooks:

        def run(group: Group, make: Any = make_state, hook: Any = hook, mb: Any = bucket_mb) -> Any:
            ddp = DistributedDataParallel(Model(), process_group=group, bucket_cap_mb=mb)
            ddp.register_comm_hook(make(group), hook)
            train(ddp)
            return synced(ddp)

        same_on_both(run, tolerance)
    # With several buckets PowerSGD's chained reductions lose their order on gloo, not here.
    same_on_all_ranks(run(dist.group.WORLD, power, powerSGD_hook.powerSGD_hook, 0.001))


def ddp_reduces_half_precision_and_sparse_gradients() -> None:
    def bfloat16(group: Group) -> Weights:
        ddp = DistributedDataParallel(nn.Linear(12, 5).bfloat16(), process_group=group)
        ddp(inputs(0).bfloat16()).sum().backward()
        return [parameter.grad.float() for parameter in ddp.parameters()]

    torch.manual_seed(0)
    same_on_both(bfloat16, 0.05)

    def sparse(group: Group) -> Weights:
        torch.manual_seed(0)
        ddp = DistributedDataParallel(nn.EmbeddingBag(10, 3, sparse=True), process_group=group)
        ddp(torch.tensor([[RANK, 5]])).sum().backward()
        return [parameter.grad.to_dense() for parameter in ddp.parameters()]

    same_on_both(sparse)


def join_handles_uneven_inputs() -> None:
    def run(group: Group) -> Weights:
        ddp = DistributedDataParallel(Model(), process_group=group, bucket_cap_mb=0.001)
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
        with Join([ddp]):
            for step in range(2 + 3 * RANK):  # rank 0 has the fewest
                optimizer.zero_grad()
                ddp(inputs(step)).square().mean().backward()
                optimizer.step()
        return synced(ddp)

    same_on_both(run)


def zero_shards_the_optimizer() -> None:
    def run(group: Group) -> Weights:
        ddp = DistributedDataParallel(Model(), process_group=group)
        optimizer = ZeroRedundancyOptimizer(
            ddp.parameters(), torch.optim.Adam, process_group=group, lr=0.01, eps=0.01
        )
        for step in range(STEPS):
            optimizer.zero_grad()
            ddp(inputs(step)).square().mean().backward()
            optimizer.step()
        optimizer.consolidate_state_dict(to=0)
        if RANK == 0:
            assert len(optimizer.state_dict()["state"]) == len(list(ddp.parameters()))
        return synced(ddp)

    same_on_both(run, 1e-5)


def fsdp_shards_the_model() -> None:
    """On the CPU; against DDP, since FSDP's average needs a backend that has one."""
    for policy, tolerance in (
        (MixedPrecisionPolicy(), 1e-5),
        (MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32), 3e-2),
    ):
        mesh = dist.device_mesh.init_device_mesh("cpu", (SIZE,))
        torch.manual_seed(1)
        layers = [nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 5)]
        sharded = nn.Sequential(*layers)
        replicated = DistributedDataParallel(copy.deepcopy(sharded))
        fully_shard(sharded[0], mesh=mesh, mp_policy=policy)
        fully_shard(sharded, mesh=mesh, mp_policy=policy)
        train(replicated)
        train(sharded)
        whole = [parameter.full_tensor() for parameter in sharded.parameters()]
        expected = [parameter.detach() for parameter in replicated.parameters()]
        torch.testing.assert_close(whole, expected, rtol=tolerance, atol=tolerance)
        assert sharded[0].weight.to_local().shape[0] == -(-24 // SIZE)


def checkpoints_are_saved_and_loaded() -> None:
    folder = [tempfile.mkdtemp() if RANK == 0 else None]
    dist.broadcast_object_list(folder)
    mesh = dist.device_mesh.init_device_mesh("cpu", (SIZE,))
    torch.manual_seed(1)
    saved, loaded = nn.Linear(12, 8), nn.Linear(12, 8)
    for model in (saved, loaded):
        fully_shard(model, mesh=mesh)
    dcp.save({"model": saved.state_dict()}, checkpoint_id=folder[0])
    weights = {"model": loaded.state_dict()}
    dcp.load(weights, checkpoint_id=folder[0])
    loaded.load_state_dict(weights["model"])
    for one, other in zip(saved.parameters(), loaded.parameters(), strict=True):
        assert torch.equal(one.full_tensor(), other.full_tensor())


def several_models_train_at_once() -> None:
    """Two networks with groups of their own, their backwards interleaved, as a GAN's are."""
    groups = [dist.new_group(), dist.new_group()]
    models = [DistributedDataParallel(Model(), process_group=group) for group in groups]
    for step in range(STEPS):
        outputs = [model(inputs(step)) for model in models]
        (outputs[0].square().mean() + outputs[1].square().mean()).backward()
    for one, other in zip(*(model.parameters() for model in models), strict=True):
        torch.testing.assert_close(one.grad, other.grad)


if __name__ == "__main__":
    mpi_backend.register()
    limit = timedelta(seconds=30)
    dist.init_process_group("mpi4py", store=Store(), rank=RANK, world_size=SIZE, timeout=limit)
    gloo = dist.new_group(backend="gloo", timeout=limit)
    checks = [
        ddp_trains,
        ddp_finds_unused_parameters,
        ddp_accumulates_without_sync,
        ddp_copies_buffers_from_rank_0,
        ddp_runs_communication_hooks,
        ddp_reduces_half_precision_and_sparse_gradients,
        join_handles_uneven_inputs,
        zero_shards_the_optimizer,
        fsdp_shards_the_model,
        checkpoints_are_saved_and_loaded,
        several_models_train_at_once,
    ]
    wanted = [check for check in checks if not sys.argv[1:] or check.__name__ in sys.argv[1:]]
    run_checks(wanted, recover=mpi_backend.renew)
