"""What ranks do to each other when one fails: calls that differ, models that drift, starting over.

The argument names the backend, "mpi4py" or "gloo".
"""

import sys
import threading
import time
import warnings

import pytest
import torch
import torch.distributed as dist
from checks import run_checks
from mpi4py import MPI

from tutorial_lib.distributed import data_parallel as data_parallel_module
from tutorial_lib.distributed import mpi_backend, recovery, session
from tutorial_lib.distributed.data_parallel import data_parallel
from tutorial_lib.distributed.fingerprint import Fingerprint
from tutorial_lib.distributed.mpi_errors import (
    CollectiveError,
    CollectiveMismatchError,
    CollectiveTimeoutError,
)
from tutorial_lib.distributed.mpi_work import Work
from tutorial_lib.distributed.sync_check import OutOfSyncError, check_in_sync

warnings.filterwarnings("error")

WORLD = MPI.COMM_WORLD
RANK, SIZE = WORLD.rank, WORLD.size
OTHERS = "rank 1 calls" if SIZE == 2 else f"ranks {', '.join(map(str, range(1, SIZE)))} call"


def start_over() -> None:
    WORLD.Barrier()
    recovery.renew()
    total = torch.ones(1000)
    dist.all_reduce(total)
    assert total.eq(SIZE).all()


def calls_that_differ_name_ranks_and_lines() -> None:
    def small() -> torch.Tensor:
        return torch.ones(3)

    differing = [
        (lambda: dist.all_reduce(torch.ones(3 if RANK else 4)), "all_reduce (float32 [4])"),
        (lambda: dist.all_reduce(torch.ones(3 if RANK else 300_000)), "[300000]"),
        # MPI ends the process when data of different types meets.
        (lambda: dist.all_reduce(small().to(torch.int64 if RANK else torch.float32)), "float32"),
        (lambda: dist.all_reduce(small()) if RANK else dist.barrier(), "barrier"),
        (lambda: dist.broadcast(small(), min(RANK, 1)), "broadcast with rank 0"),
        (lambda: dist.all_reduce(small(), dist.ReduceOp.SUM if RANK else dist.ReduceOp.MAX), "MAX"),
    ]
    for call, text in differing:
        begun = time.monotonic()
        with pytest.raises(CollectiveMismatchError) as caught:
            call()
        assert time.monotonic() - begun < 10, "it should not wait for a time-out"
        said = str(caught.value)
        assert f"rank 0 calls {text}" in said or text in said.partition(";")[0], said
        assert OTHERS in said, said
        assert "of faults.py" in said, said
        start_over()


def one_of_many_that_differs_ends_all() -> None:
    def many() -> None:
        tensors = [torch.ones(1000 + (RANK == 1 and i == 3)) for i in range(6)]
        for work in [dist.all_reduce(tensor, async_op=True) for tensor in tensors]:
            work.wait()

    with pytest.raises(CollectiveMismatchError, match=r"\[1001\]"):
        many()
    start_over()


def a_call_that_has_not_gone_out_is_not_agreed_on() -> None:
    work = dist.all_reduce(torch.ones(3), async_op=True)
    work.wait()
    # A thread that waits for an earlier collective may ask this before the call goes out.
    assert not Fingerprint(work, None).is_agreed()


def one_that_mpi_refuses_ends_all() -> None:
    post = Work.post

    def refuse(work: Work, comm: MPI.Comm) -> None:
        if work.operation == "broadcast":
            raise MPI.Exception(MPI.ERR_OTHER)
        post(work, comm)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Work, "post", refuse)
        refused = dist.broadcast(torch.ones(2), 0, async_op=True)
        with pytest.raises(CollectiveError, match="could not begin broadcast"):
            dist.all_reduce(torch.ones(2))
        with pytest.raises(CollectiveError, match="could not begin broadcast"):
            refused.wait()
    start_over()


def a_wrapper_that_one_rank_has_not_made_spoils_no_later_one() -> None:
    if RANK == 0:
        next(data_parallel_module._numbers)  # as when the error comes while the ranks make one
    start_over()
    model = data_parallel(torch.nn.Linear(2, 2))
    assert recovery.renew() == ["Linear"]
    del model


def equal_calls_give_what_they_give_unchecked() -> None:
    group = dist.new_group()
    model = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.Linear(30, 5))
    ddp = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.001)
    results = []
    for is_checked in (False, True):
        mpi_backend.check_calls(is_checked)
        ddp.zero_grad()
        works = [dist.all_reduce(torch.ones(9), async_op=True, group=group) for _ in range(5)]
        ddp(torch.full((4, 20), float(RANK))).sum().backward()
        values = [parameter.grad.clone() for parameter in model.parameters()]
        for work in works:
            work.wait()
            values += work.result()
        gathered = [None] * SIZE
        dist.all_gather_object(gathered, RANK)
        parts = [torch.zeros(rank + 1) for rank in range(SIZE)]
        dist.all_gather(parts, torch.full((RANK + 1,), float(RANK)))
        results.append([*values, *parts, torch.tensor(gathered)])
    for unchecked, checked in zip(*results, strict=True):
        assert torch.equal(unchecked, checked)
    dist.destroy_process_group(group)


def a_drifting_model_is_named() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    model(torch.ones(2, 4)).sum().backward()
    check_in_sync(model)
    tampered = [
        (model[0].weight.data, "parameter 0.weight"),
        (model[0].weight.grad, "gradient of 0.weight"),
        (model[1].running_mean, "buffer 1.running_mean"),
    ]
    for tensor, name in tampered:
        kept = tensor.clone()
        if RANK == 1:
            tensor.view(-1)[0] += 1
        with pytest.raises(OutOfSyncError, match=rf"^{name} is not the same") as caught:
            check_in_sync(model)
        assert "; rank 1 has" in str(caught.value)
        tensor.copy_(kept)
    check_in_sync(data_parallel(model))
    if RANK == 1:
        model[0].bias.grad = None
    with pytest.raises(OutOfSyncError, match=r"gradient of 0.bias .*rank 1 has none"):
        check_in_sync(model)
    check_in_sync(model, gradients=False)


def a_model_goes_on_after_a_broken_backward() -> None:
    torch.manual_seed(RANK)
    model = torch.nn.Linear(10, 10)
    wrapped = data_parallel(model)

    def gradient() -> torch.Tensor:
        wrapped.zero_grad()
        wrapped(torch.full((4, 10), float(RANK))).sum().backward()
        return model.weight.grad.clone()

    before = gradient()
    for _ in range(2):
        if RANK == 0:
            threading.Timer(0.2, recovery.cancel, ("rank 1 failed",)).start()
            with pytest.raises(RuntimeError):
                gradient()
        elif RANK == 1:
            with torch.no_grad():
                model.weight += 1  # an update that the others have not made
        WORLD.Barrier()
        assert recovery.renew() == ["Linear"]
        check_in_sync(model, gradients=False)
        assert torch.equal(gradient(), before)
        check_in_sync(model)


def a_cancel_can_stand_for_a_time_out() -> None:
    if RANK == 0:
        threading.Timer(0.2, recovery.cancel, ("rank 1 is late", True)).start()
        with pytest.raises(CollectiveTimeoutError, match="rank 1 is late"):
            dist.barrier()
    start_over()


if __name__ == "__main__":
    backend = sys.argv[1]
    session.start(backend, timeout_s=30)
    checks = [a_drifting_model_is_named, a_model_goes_on_after_a_broken_backward]
    if backend == "mpi4py":
        mpi_backend.check_calls(True)
        checks += [
            calls_that_differ_name_ranks_and_lines,
            one_of_many_that_differs_ends_all,
            a_call_that_has_not_gone_out_is_not_agreed_on,
            one_that_mpi_refuses_ends_all,
            a_wrapper_that_one_rank_has_not_made_spoils_no_later_one,
            equal_calls_give_what_they_give_unchecked,
            a_cancel_can_stand_for_a_time_out,
        ]
    run_checks(checks, recover=recovery.renew)
