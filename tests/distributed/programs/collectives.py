"""Every collective over MPI, against what it should give, and against gloo where gloo has it."""

import warnings
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import reduce

import pytest
import torch
import torch.distributed as dist
from checks import run_checks
from mpi4py import MPI

from tutorial_lib.distributed import mpi_backend
from tutorial_lib.distributed.mpi_store import Store

warnings.filterwarnings("error")
warnings.filterwarnings("ignore", message="ComplexHalf support is experimental")
warnings.filterwarnings("ignore", message=".*deprecated", category=FutureWarning)  # new names

RANK, SIZE = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
RANKS = range(SIZE)
FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
UNSIGNED = [torch.uint16, torch.uint32, torch.uint64]
COMPLEX = [torch.complex64, torch.complex128]
OTHERS = [torch.bool, torch.float8_e4m3fn, torch.float8_e5m2, torch.complex32]
SHAPES = [(), (0,), (5,), (3, 4), (2, 0, 3), (1031,)]
OPS = dist.ReduceOp.RedOpType


def values(dtype: torch.dtype, shape: tuple[int, ...], rank: int) -> torch.Tensor:
    """Small numbers, exact in every dtype, other ones on every rank."""
    count = int(torch.tensor(shape).prod()) if shape else 1
    numbers = (torch.arange(count) * 3 + rank * 5) % 4
    if dtype == torch.bool:
        return (numbers > 1).reshape(shape)
    if dtype.is_complex:
        wide = torch.complex(numbers.double(), numbers.flip(0).double())
        return wide.to(torch.complex64).to(dtype).reshape(shape)
    return numbers.to(torch.float32).to(dtype).reshape(shape)


def wide(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.is_floating_point() else tensor.to(torch.int64)


def expected(op: OPS, tensors: list[torch.Tensor]) -> torch.Tensor:
    """The reduction, computed in a wide dtype."""
    dtype = tensors[0].dtype
    parts = [wide(tensor) for tensor in tensors]
    combine: dict[OPS, Callable[..., torch.Tensor]] = {
        OPS.SUM: torch.add,
        OPS.AVG: torch.add,
        OPS.PRODUCT: torch.mul,
        OPS.MIN: torch.minimum,
        OPS.MAX: torch.maximum,
        OPS.BAND: torch.bitwise_and,
        OPS.BOR: torch.bitwise_or,
        OPS.BXOR: torch.bitwise_xor,
    }
    total = reduce(combine[op], parts)
    if op == OPS.AVG:
        is_float = dtype.is_floating_point or dtype.is_complex
        total = total / SIZE if is_float else torch.div(total, SIZE, rounding_mode="trunc")
    return total.bool() if dtype == torch.bool else total.to(dtype)


def combinations() -> Iterator[tuple[torch.dtype, OPS]]:
    for dtype in [*FLOATS, *INTEGERS, *UNSIGNED, *COMPLEX, *OTHERS]:
        for op in (OPS.SUM, OPS.AVG, OPS.PRODUCT, OPS.MIN, OPS.MAX, OPS.BAND, OPS.BOR, OPS.BXOR):
            is_float = dtype.is_floating_point or dtype.is_complex
            if is_float and op in (OPS.BAND, OPS.BOR, OPS.BXOR):
                continue
            if dtype.is_complex and op not in (OPS.SUM, OPS.AVG):
                continue
            if dtype == torch.bool and op == OPS.AVG:
                continue
            if dtype in (torch.float8_e4m3fn, torch.float8_e5m2, torch.complex32) and op != OPS.SUM:
                continue
            yield dtype, op


def equal(got: torch.Tensor, want: torch.Tensor) -> None:
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    same = wide(got) == wide(want)
    assert same.all(), f"got {got}, want {want}"


def gloo_agrees(name: str, run: Callable[[dist.ProcessGroup], object], ours: object) -> None:
    """Run the same on gloo and compare, unless gloo refuses it (on every rank alike)."""
    try:
        theirs = run(gloo)
    except (RuntimeError, ValueError, TypeError):
        not_in_gloo.add(name)
        return
    torch.testing.assert_close(theirs, ours, rtol=0, atol=0, equal_nan=True)


def all_reduce_has_every_dtype_and_operation() -> None:
    for dtype, op in combinations():
        for shape in SHAPES:

            def run(group: dist.ProcessGroup | None, dtype=dtype, op=op, shape=shape):
                tensor = values(dtype, shape, RANK)
                dist.all_reduce(tensor, op, group=group)
                return tensor

            got = run(None)
            equal(got, expected(op, [values(dtype, shape, r) for r in RANKS]))
            name = f"all_reduce {str(dtype).removeprefix('torch.')} {op.name}"
            if dtype != torch.bool and dtype not in OTHERS:
                gloo_agrees(name, run, got)


def all_reduce_scales_first_with_premul_sum() -> None:
    for factor in (0.5, torch.tensor([2.0])):
        tensor = values(torch.float32, (5,), RANK)
        dist.all_reduce(tensor, dist._make_nccl_premul_sum(factor))
        total = sum(values(torch.float32, (5,), r) * factor for r in RANKS)
        equal(tensor, total)
    mine = values(torch.float32, (SIZE,), RANK)
    keep, chunk = mine.clone(), torch.empty(1)
    dist.reduce_scatter_tensor(chunk, mine, dist._make_nccl_premul_sum(0.5))
    equal(chunk, (sum(values(torch.float32, (SIZE,), r) for r in RANKS) * 0.5)[RANK].view(1))
    equal(mine, keep)
    dist.reduce(mine, 0, dist._make_nccl_premul_sum(0.5))
    equal(mine, sum(values(torch.float32, (SIZE,), r) for r in RANKS) * 0.5 if RANK == 0 else keep)


def half_precision_is_reduced_in_float32() -> None:
    """A sum that overflows or loses its small parts when it is rounded at every step."""
    for dtype in (torch.float16, torch.bfloat16):
        mine = torch.full((7,), 1.0 if RANK == 0 else 2.0**-9, dtype=dtype)
        total = sum((1.0 if r == 0 else 2.0**-9) for r in RANKS)
        dist.all_reduce(mine)
        equal(mine, torch.full((7,), total).to(dtype))
    big = torch.full((3,), 60000.0, dtype=torch.float16)
    dist.all_reduce(big, dist.ReduceOp.AVG)
    equal(big, torch.full((3,), 60000.0, dtype=torch.float16))


def what_means_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="BAND means nothing"):
        dist.all_reduce(torch.ones(2), dist.ReduceOp.BAND)
    with pytest.raises(ValueError, match="AVG means nothing"):
        dist.all_reduce(torch.ones(2, dtype=torch.bool), dist.ReduceOp.AVG)
    with pytest.raises(ValueError, match="can be moved, not reduced"):
        dist.all_reduce(torch.empty(2, dtype=torch.bits8))
    with pytest.raises(ValueError, match="one for each rank and add up"):
        dist.all_to_all_single(torch.empty(3), torch.empty(3), [1] * SIZE, [3] * SIZE)
    with pytest.raises(ValueError, match=f"must hold {SIZE} tensors"):
        dist.group.WORLD.all_gather_single(torch.empty(1), torch.empty(3))


def results_are_the_same_bits_on_all_ranks() -> None:
    torch.manual_seed(RANK)
    for count in (1, 1000, 118_016, 1_000_003):
        mine = torch.randn(count)
        dist.all_reduce(mine)
        copies = [torch.empty_like(mine) for _ in RANKS]
        dist.all_gather(copies, mine)
        assert all(torch.equal(copy, mine) for copy in copies)


def strides_views_and_gradients_are_respected() -> None:
    base = torch.zeros(4, 6)
    base.t()[1:3].copy_(torch.full((2, 4), float(RANK + 1)))
    dist.all_reduce(base.t()[1:3])
    total = float(sum(r + 1 for r in RANKS))
    assert base[:, 1:3].eq(total).all()
    assert base.sum() == total * 8, "elements outside the view changed"
    parameter = torch.nn.Parameter(torch.full((3,), float(RANK)))
    dist.all_reduce(parameter)
    assert parameter.tolist() == [float(sum(RANKS))] * 3
    assert parameter.requires_grad
    assert parameter.is_leaf
    dist.broadcast(parameter, 0)
    column = torch.arange(12.0).reshape(3, 4)[:, 1]
    gathered = [torch.empty(6)[::2] for _ in RANKS]
    dist.all_gather(gathered, column)
    assert all(part.tolist() == [1.0, 5.0, 9.0] for part in gathered)
    received = torch.zeros(3, 2)[:, 0]
    if SIZE > 1:
        if RANK == 0:
            dist.send(column, 1)
        elif RANK == 1:
            dist.recv(received, 0)
            assert received.tolist() == [1.0, 5.0, 9.0]


def moved(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    """All collectives that move, for one dtype and shape."""
    mine, all_of_them = values(dtype, shape, RANK), [values(dtype, shape, r) for r in RANKS]
    name = str(dtype).removeprefix("torch.")

    def empty() -> torch.Tensor:
        return torch.zeros(shape, dtype=dtype)

    for root in {0, SIZE - 1}:
        tensor = mine.clone()
        dist.broadcast(tensor, root)
        equal(tensor, all_of_them[root])
        parts = [empty() for _ in RANKS] if root == RANK else None
        dist.gather(mine, parts, root)
        for got, want in zip(parts or [], all_of_them, strict=False):
            equal(got, want)
        tensor = empty()
        dist.scatter(tensor, all_of_them if root == RANK else None, root)
        equal(tensor, mine)

    def all_gather(group: dist.ProcessGroup | None) -> list[torch.Tensor]:
        parts = [empty() for _ in RANKS]
        dist.all_gather(parts, mine, group=group)
        return parts

    for got, want in zip(all_gather(None), all_of_them, strict=True):
        equal(got, want)
    if dtype in (torch.float32, torch.int64, torch.bool, torch.bfloat16, torch.complex64):
        gloo_agrees(f"all_gather {name}", all_gather, all_gather(None))
    received = [empty() for _ in RANKS]
    dist.all_to_all(received, [values(dtype, shape, RANK * SIZE + r) for r in RANKS])
    for rank, got in enumerate(received):
        equal(got, values(dtype, shape, rank * SIZE + RANK))
    if not shape:
        return
    together = torch.zeros((SIZE * shape[0], *shape[1:]), dtype=dtype)
    dist.all_gather_into_tensor(together, mine)
    for rank, got in enumerate(together.chunk(SIZE) if together.numel() else []):
        equal(got, all_of_them[rank])
    exchanged = torch.zeros_like(together)
    dist.all_to_all_single(exchanged, together)
    for got in exchanged.chunk(SIZE) if exchanged.numel() else []:
        equal(got, mine)


def every_dtype_moves() -> None:
    for dtype in [*FLOATS, *INTEGERS, *UNSIGNED, *COMPLEX, *OTHERS]:
        for shape in SHAPES:
            moved(dtype, shape)


def reduce_gives_the_result_to_one_rank_only() -> None:
    for op in (OPS.SUM, OPS.AVG, OPS.MAX):
        for dtype in (torch.float32, torch.bfloat16, torch.int64):
            for root in {0, SIZE - 1}:
                mine = values(dtype, (5,), RANK)
                dist.reduce(mine, root, op)
                want = expected(op, [values(dtype, (5,), r) for r in RANKS])
                equal(mine, want if root == RANK else values(dtype, (5,), RANK))


def reduce_scatter_gives_each_rank_its_part() -> None:
    for op in (OPS.SUM, OPS.AVG, OPS.MAX, OPS.PRODUCT):
        for dtype in (torch.float32, torch.float16, torch.int32):
            inputs = [values(dtype, (3,), RANK + to) for to in RANKS]
            want = expected(op, [values(dtype, (3,), r + RANK) for r in RANKS])
            output = torch.zeros(3, dtype=dtype)
            dist.reduce_scatter(output, inputs, op)
            equal(output, want)
            output.zero_()
            together = torch.cat(inputs)
            dist.reduce_scatter_tensor(output, together, op)
            equal(output, want)
            equal(together, torch.cat(inputs))
            inside = together[3 * RANK : 3 * RANK + 3]  # the output may lie in the input
            dist.reduce_scatter_tensor(inside, together, op)
            equal(inside, want)


def shapes_may_differ_by_rank() -> None:
    parts = [torch.zeros(r + 1) for r in RANKS]
    dist.all_gather(parts, torch.full((RANK + 1,), float(RANK)))
    for rank, part in enumerate(parts):
        assert part.eq(rank).all()
    inputs = [torch.full((to + 1,), float(RANK)) for to in RANKS]
    output = torch.zeros(RANK + 1)
    dist.reduce_scatter(output, inputs)
    assert output.eq(sum(RANKS)).all()
    sent = [torch.full((RANK + to,), float(RANK)) for to in RANKS]
    received = [torch.empty(RANK + r) for r in RANKS]
    dist.all_to_all(received, sent)
    for rank, part in enumerate(received):
        assert part.eq(rank).all()


def all_to_all_single_splits_unevenly() -> None:
    sizes = [RANK + to for to in RANKS]

    def run(group: dist.ProcessGroup | None) -> torch.Tensor:
        source = torch.arange(sum(sizes) * 2.0).reshape(-1, 2) + 100 * RANK
        target = torch.zeros(sum(sizes), 2)
        dist.all_to_all_single(target, source, sizes, sizes, group=group)
        return target

    ours = run(None)
    for rank, part in enumerate(ours.split(sizes)):
        start = sum(rank + to for to in range(RANK)) * 2.0
        want = torch.arange(start, start + part.numel()).reshape(-1, 2) + 100 * rank
        equal(part, want)
    gloo_agrees("all_to_all_single", run, ours)


def in_place_gathers_work() -> None:
    together = torch.zeros(SIZE * 3)
    mine = together[3 * RANK : 3 * RANK + 3]
    mine.fill_(RANK)
    dist.all_gather_into_tensor(together, mine)
    assert together.tolist() == [float(r) for r in RANKS for _ in range(3)]


def messages_find_their_tag_and_sender() -> None:
    if SIZE == 1:
        return
    after, before = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    sends = [dist.isend(torch.full((4,), float(10 * RANK + tag)), after, tag=tag) for tag in (7, 3)]
    for tag in (3, 7):
        got = torch.empty(4)
        assert dist.recv(got, before, tag=tag) == before
        assert got.eq(10 * before + tag).all()
    for send in sends:
        send.wait()
    ops = [
        dist.P2POp(dist.irecv, incoming := torch.empty(3), before),
        dist.P2POp(dist.isend, torch.full((3,), float(RANK)), after),
    ]
    for request in dist.batch_isend_irecv(ops):
        request.wait()
    assert incoming.eq(before).all()
    if RANK == 0:
        senders = set()
        for _ in range(SIZE - 1):
            got = torch.empty(1)
            sender = dist.recv(got)
            assert got.item() == sender
            senders.add(sender)
        assert senders == set(range(1, SIZE))
    else:
        dist.send(torch.tensor([float(RANK)]), 0)


def large_messages_cross_each_other() -> None:
    """Both sides send more than fits a buffer before either receives."""
    if SIZE == 1:
        return
    peer, count = RANK ^ 1, 1 << 20
    sending = dist.isend(torch.full((count,), float(RANK)), peer)
    got = torch.empty(count)
    dist.recv(got, peer)
    sending.wait()
    assert got.eq(peer).all()


def objects_travel() -> None:
    everything = [None] * SIZE
    dist.all_gather_object(everything, {"rank": RANK, "text": "x" * RANK})
    assert everything == [{"rank": r, "text": "x" * r} for r in RANKS]
    shared = [{"from": RANK}, RANK]
    dist.broadcast_object_list(shared, src=SIZE - 1)
    assert shared == [{"from": SIZE - 1}, SIZE - 1]
    gathered = [None] * SIZE if RANK == 0 else None
    dist.gather_object(RANK**2, gathered, dst=0)
    assert gathered is None or gathered == [r**2 for r in RANKS]
    mine = [None]
    dist.scatter_object_list(mine, [f"for {r}" for r in RANKS] if RANK == 0 else None, src=0)
    assert mine == [f"for {RANK}"]
    if SIZE > 1:
        if RANK == 0:
            dist.send_object_list(["hello", 1], dst=1)
        elif RANK == 1:
            got = [None, None]
            dist.recv_object_list(got, src=0)
            assert got == ["hello", 1]


def coalesced_operations_do_all_their_tensors() -> None:
    tensors = [torch.full((n,), float(RANK)) for n in (1, 5, 0, 3)]
    dist.all_reduce_coalesced(tensors)
    assert all(tensor.eq(sum(RANKS)).all() for tensor in tensors)
    with dist.distributed_c10d._coalescing_manager() as manager:
        for tensor in tensors:
            dist.all_reduce(tensor, dist.ReduceOp.MAX)
    assert not manager.works
    assert all(tensor.eq(sum(RANKS)).all() for tensor in tensors)
    outputs = [torch.zeros(SIZE * n) for n in (2, 3)]
    with dist.distributed_c10d._coalescing_manager(async_ops=True) as manager:
        for output in outputs:
            mine = torch.full((output.numel() // SIZE,), float(RANK))
            dist.all_gather_into_tensor(output, mine)
    manager.wait()
    for output in outputs:
        assert output.tolist() == [float(r) for r in RANKS for _ in range(output.numel() // SIZE)]
    chunks = [torch.zeros(n) for n in (2, 3)]
    with dist.distributed_c10d._coalescing_manager():
        for chunk in chunks:
            dist.reduce_scatter_tensor(chunk, torch.full((chunk.numel() * SIZE,), 1.0))
    assert all(chunk.eq(SIZE).all() for chunk in chunks)
    lists = [[torch.zeros(2), torch.zeros(3)] for _ in RANKS]
    dist.all_gather_coalesced(lists, [torch.full((n,), float(RANK)) for n in (2, 3)])
    assert all(tensor.eq(rank).all() for rank, pair in enumerate(lists) for tensor in pair)


def functional_collectives_work() -> None:
    import torch.distributed._functional_collectives as functional

    mine, group = torch.full((SIZE, 2), float(RANK)), dist.group.WORLD
    assert functional.all_reduce(mine, "sum", group).eq(sum(RANKS)).all()
    gathered = functional.all_gather_tensor(mine, 0, group)
    assert gathered[SIZE * RANK].eq(RANK).all()
    scattered = functional.reduce_scatter_tensor(mine, "avg", 0, group)
    assert scattered.eq(sum(RANKS) / SIZE).all()
    exchanged = functional.all_to_all_single(mine, None, None, group)
    assert exchanged[:, 0].tolist() == [float(r) for r in RANKS]
    assert functional.broadcast(mine, 0, group).eq(0).all()


def sparse_tensors_are_summed() -> None:
    def run(group: dist.ProcessGroup | None) -> torch.Tensor:
        indices = torch.tensor([[RANK, RANK + 1], [0, 1]])
        shape = (SIZE + 1, 2)
        tensor = torch.sparse_coo_tensor(indices, torch.ones(2), shape, check_invariants=True)
        dist.all_reduce(tensor, group=group)
        return tensor.to_dense()

    ours = run(None)
    want = torch.zeros(SIZE + 1, 2)
    for rank in RANKS:
        want[rank, 0] += 1
        want[rank + 1, 1] += 1
    equal(ours, want)
    gloo_agrees("sparse all_reduce", run, ours)


def groups_of_some_ranks_are_independent() -> None:
    if SIZE > 1:
        pairs, _ = dist.new_subgroups_by_enumeration([[r, r ^ 1] for r in range(0, SIZE, 2)])
        tensor = torch.ones(2) * RANK
        dist.all_reduce(tensor, group=pairs)
        assert tensor.eq(RANK + (RANK ^ 1)).all()
        dist.broadcast(tensor, src=RANK | 1, group=pairs)
        dist.destroy_process_group(pairs)
    last = dist.new_group([SIZE - 1])
    if RANK == SIZE - 1:
        dist.all_reduce(torch.ones(1), group=last)
        assert dist.get_world_size(last) == 1
    else:
        assert last == dist.GroupMember.NON_GROUP_MEMBER
    backward = dist.new_group(list(reversed(RANKS)), sort_ranks=False)
    assert dist.get_rank(backward) == SIZE - 1 - RANK
    everything = [torch.empty(1) for _ in RANKS]
    dist.all_gather(everything, torch.tensor([float(RANK)]), group=backward)
    assert [int(part) for part in everything] == list(reversed(RANKS))
    members = range(SIZE // 2 + 1)
    some = dist.new_group(list(members), use_local_synchronization=True)
    first, second = torch.ones(1000), torch.ones(1000)
    works = [dist.all_reduce(first, async_op=True)]
    if RANK in members:
        works.append(dist.all_reduce(second, group=some, async_op=True))
    for work in reversed(works):
        work.wait()
    assert first.eq(SIZE).all()
    assert second.eq(len(members) if RANK in members else 1).all()
    for group in (last, backward, *([some] if RANK in members else [])):
        dist.destroy_process_group(group)


def a_device_mesh_and_dtensor_work() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    shape = (2, SIZE // 2) if SIZE % 2 == 0 else (1, SIZE)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("outer", "inner"))
    whole = torch.arange(4.0 * SIZE).reshape(SIZE, 4)
    sharded = distribute_tensor(whole, mesh, [Shard(0), Shard(1)])
    assert torch.equal(sharded.full_tensor(), whole)
    product = sharded @ distribute_tensor(torch.eye(4), mesh, [Replicate(), Replicate()])
    assert torch.equal(product.full_tensor(), whole)


def the_barrier_holds_until_all_have_come() -> None:
    work = dist.barrier(async_op=True)
    work.wait()
    assert work.is_completed()
    dist.barrier()
    dist.group.WORLD.monitored_barrier(timedelta(seconds=5))


def torch_knows_the_group() -> None:
    assert dist.get_backend() == "mpi4py"
    assert (dist.get_rank(), dist.get_world_size()) == (RANK, SIZE)
    assert dist.get_process_group_ranks(dist.group.WORLD) == list(RANKS)
    before = dist.group.WORLD.sequence
    dist.barrier()
    assert dist.group.WORLD.sequence == before + 1
    assert mpi_backend.pending() == []


if __name__ == "__main__":
    mpi_backend.register()
    store = Store()
    short = timedelta(seconds=20)
    dist.init_process_group("mpi4py", store=store, rank=RANK, world_size=SIZE, timeout=short)
    gloo = dist.new_group(backend="gloo", timeout=short)
    not_in_gloo: set[str] = set()
    run_checks(
        [
            all_reduce_has_every_dtype_and_operation,
            all_reduce_scales_first_with_premul_sum,
            half_precision_is_reduced_in_float32,
            what_means_nothing_is_refused,
            results_are_the_same_bits_on_all_ranks,
            strides_views_and_gradients_are_respected,
            every_dtype_moves,
            reduce_gives_the_result_to_one_rank_only,
            reduce_scatter_gives_each_rank_its_part,
            shapes_may_differ_by_rank,
            all_to_all_single_splits_unevenly,
            in_place_gathers_work,
            messages_find_their_tag_and_sender,
            large_messages_cross_each_other,
            objects_travel,
            coalesced_operations_do_all_their_tensors,
            functional_collectives_work,
            sparse_tensors_are_summed,
            groups_of_some_ranks_are_independent,
            a_device_mesh_and_dtensor_work,
            the_barrier_holds_until_all_have_come,
            torch_knows_the_group,
        ],
        recover=mpi_backend.renew,
    )
