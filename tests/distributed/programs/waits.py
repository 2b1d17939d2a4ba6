"""Waits over MPI: time-outs, cancels, interrupts, futures, overlap, and starting over."""

import gc
import os
import signal
import tempfile
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from checks import run_checks
from mpi4py import MPI
from torch.nn.parallel import DistributedDataParallel

from tutorial_lib.distributed import mpi_backend, mpi_group
from tutorial_lib.distributed.mpi_errors import (
    CollectiveCancelledError,
    CollectiveError,
    CollectiveTimeoutError,
)
from tutorial_lib.distributed.mpi_future import PolledFuture
from tutorial_lib.distributed.mpi_group import Group
from tutorial_lib.distributed.mpi_store import Store
from tutorial_lib.distributed.mpi_work import Work

warnings.filterwarnings("error")

WORLD = MPI.COMM_WORLD
RANK, SIZE = WORLD.rank, WORLD.size
LAST = SIZE - 1


def seconds(value: float) -> timedelta:
    return timedelta(seconds=value)


def all_reduce_works(group: dist.ProcessGroup | None = None) -> None:
    tensor = torch.ones(1000)
    dist.all_reduce(tensor, group=group)
    assert tensor.eq(dist.get_world_size(group)).all()


def nothing_is_pending_soon() -> None:
    deadline = time.monotonic() + 5
    while mpi_backend.pending() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert mpi_backend.pending() == []


def appears(path: Path) -> None:
    deadline = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < deadline, f"{path.name}: no data moved"
        time.sleep(0.01)


@contextmanager
def takes(at_least_s: float, at_most_s: float) -> Iterator[None]:
    start = time.perf_counter()
    yield
    elapsed_s = time.perf_counter() - start
    assert at_least_s <= elapsed_s <= at_most_s, f"took {elapsed_s:.2f} s"


def is_waiting() -> bool:
    return any(operation.is_waited_for for operation in mpi_backend.pending())


@contextmanager
def struck(
    act: Callable[[], None], limit_s: float, when: Callable[[], bool] = is_waiting
) -> Iterator[None]:
    """Another thread acts once this one waits, which then ends within ``limit_s``."""
    acted_s, is_over = 0.0, threading.Event()

    def strike() -> None:
        nonlocal acted_s
        while not is_over.wait(0.01):
            if when():
                acted_s = time.perf_counter()
                act()
                return

    thread = threading.Thread(target=strike)
    thread.start()
    try:
        yield
        elapsed_s = time.perf_counter() - acted_s
    finally:
        is_over.set()
        thread.join()
    assert acted_s, "nothing waited"
    assert elapsed_s <= limit_s, f"took {elapsed_s:.2f} s"


interrupted = partial(struck, partial(os.kill, os.getpid(), signal.SIGINT), 3)


def a_time_out_says_what_and_who() -> None:
    group = dist.new_group()
    before_s = group.timeout_s
    all_reduce_works(group)
    if RANK == LAST:
        group.set_timeout(seconds(0.5))
        with takes(0.4, 3), pytest.raises(CollectiveTimeoutError) as caught:
            dist.all_reduce(torch.ones(3, 4), group=group)
        for part in (
            f"rank {RANK} waited 0.5 s in all_reduce #1 (float32 [3, 4], 48 bytes)",
            f"group {group.group_name!r}, ranks {', '.join(map(str, range(SIZE)))}",
        ):
            assert part in str(caught.value), caught.value
        with pytest.raises(CollectiveTimeoutError, match="cannot use group"):
            dist.barrier(group)
        assert group.pending() == []
        group.set_timeout(seconds(before_s))
    WORLD.Barrier()
    mpi_backend.renew()
    all_reduce_works(group)
    assert group.sequence == 1
    dist.destroy_process_group(group)


def a_wait_of_ones_own_can_be_repeated() -> None:
    if RANK == 0:
        work = dist.all_reduce(tensor := torch.ones(3), async_op=True)
        with takes(0.1, 2), pytest.raises(CollectiveTimeoutError, match=r"waited 0\.2 s"):
            work.wait(seconds(0.2))
        assert not work.is_completed()
        WORLD.Barrier()
        assert work.wait()
        assert work.is_success()
        assert work.result() == [tensor]
        assert tensor.eq(SIZE).all()
    else:
        WORLD.Barrier()
        all_reduce_of_threes = torch.ones(3)
        dist.all_reduce(all_reduce_of_threes)


def a_thread_sees_and_cancels_a_wait() -> None:
    if RANK == 0:
        seen = []

        def look_then_cancel() -> None:
            seen.extend(mpi_backend.pending())
            mpi_backend.cancel("rank 1 failed: ZeroDivisionError")

        number = dist.group.WORLD.sequence
        with (
            struck(look_then_cancel, 2),
            pytest.raises(CollectiveCancelledError, match="rank 1 failed: ZeroDivisionError"),
        ):
            dist.broadcast(torch.ones(2, 5, dtype=torch.float64), src=LAST)
        (wait,) = seen
        assert (wait.operation, wait.sequence, wait.peer) == ("broadcast", number, LAST)
        assert (wait.dtype, wait.shape, wait.nbytes) == ("float64", (2, 5), 80)
        assert wait.is_waited_for
        assert 0 < wait.age_s < 3
        assert wait.ranks == tuple(range(SIZE))
        with pytest.raises(CollectiveCancelledError, match="rank 1 failed"):
            dist.barrier()
    WORLD.Barrier()
    mpi_backend.renew()
    all_reduce_works()


def an_interrupt_gets_into_a_wait() -> None:
    """Ranks that have begun the same collectives are in step, and need no new group."""
    if RANK == 0:
        before = dist.group.WORLD.sequence
        for _ in range(2):
            with interrupted(), pytest.raises(KeyboardInterrupt):
                dist.all_reduce(torch.ones(5))
        assert dist.group.WORLD.sequence == before + 2
        assert len(mpi_backend.pending()) == 2
        WORLD.Barrier()
    else:
        WORLD.Barrier()
        for _ in range(2):
            dist.all_reduce(torch.ones(5))
    all_reduce_works()
    nothing_is_pending_soon()


def an_interrupt_gets_into_a_backward_and_training_goes_on() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.Linear(30, 5))
    ddp = DistributedDataParallel(model, bucket_cap_mb=0.001)
    inputs = torch.full((4, 20), float(RANK))

    def step() -> None:
        ddp.zero_grad()
        ddp(inputs).sum().backward()

    step()
    step()
    want = [parameter.grad.clone() for parameter in model.parameters()]
    if RANK == 0:
        for _ in range(2):  # twice in a row
            with interrupted(), pytest.raises(KeyboardInterrupt):
                step()
            ddp.reducer._reset_state()
    WORLD.Barrier()
    mpi_backend.renew()
    ddp.reducer._reset_state()
    for _ in range(3):
        step()
        for parameter, gradient in zip(model.parameters(), want, strict=True):
            assert torch.equal(parameter.grad, gradient)


def a_cancel_gets_into_a_backward() -> None:
    ddp = DistributedDataParallel(torch.nn.Linear(20, 30))
    if RANK == 0:
        cancel = partial(mpi_backend.cancel, "rank 1 died (SIGKILL)")
        with struck(cancel, 2), pytest.raises(CollectiveCancelledError, match="rank 1 died"):
            ddp(torch.ones(4, 20)).sum().backward()
    WORLD.Barrier()
    mpi_backend.renew()
    ddp.reducer._reset_state()
    ddp(torch.ones(4, 20)).sum().backward()


def futures_can_be_waited_for_and_chained() -> None:
    tensor = torch.ones(4)
    future = dist.all_reduce(tensor, async_op=True).get_future()
    doubled = future.then(lambda done: done.value()[0] * 2)
    summed = doubled.then(lambda done: done.value().sum().item())
    assert summed.wait() == 8.0 * SIZE
    assert doubled.done()
    assert future.wait() == [tensor]
    several = [dist.all_reduce(torch.ones(1), async_op=True).get_future() for _ in range(3)]
    torch.futures.wait_all(several)  # waits in C++: a thread must complete them
    broken = dist.barrier(async_op=True).get_future().then(lambda done: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        broken.wait()
    work = dist.barrier(async_op=True)
    work.wait()
    assert work.get_future().done()
    assert isinstance(future, PolledFuture)


def a_future_tells_of_a_failure() -> None:
    if RANK == 0:
        future = dist.barrier(async_op=True).get_future()
        threading.Timer(0.2, mpi_backend.cancel, ("enough",)).start()
        with pytest.raises(RuntimeError, match="enough"):
            torch.futures.wait_all([future])
    WORLD.Barrier()
    mpi_backend.renew()
    all_reduce_works()


@contextmanager
def once(
    work: Work, lock: Any, before: Callable[[], Any] = list, after: Callable[[], Any] = list
) -> Iterator[None]:
    """A work's lock, but another thread comes just before it is taken or after it is free."""
    work._lock = lock
    before()
    with lock:
        yield
    after()


def a_future_taken_in_a_backward_is_completed_at_its_end() -> None:
    """Not when a thread polls the work meanwhile: what is chained to it may be a collective."""
    futures = []

    def reduce(gradient: torch.Tensor) -> None:
        works = [dist.all_reduce(torch.ones(4), async_op=True) for _ in range(4)]
        for work in works:
            MPI.Request.Waitall(work._posted)
        early, late, done, waited = works
        early._lock = once(early, early._lock, before=lambda: futures.append(early.get_future()))
        early.advance()
        late._lock = once(late, late._lock, after=late.advance)
        futures.append(late.get_future())
        done.advance()
        futures.append(done.get_future())
        assert [future.done() for future in futures] == [False] * 3
        waited.advance()
        futures.append(waited.get_future())
        assert futures[-1].wait()[0][0] == SIZE

    weight = torch.ones(2, requires_grad=True)
    weight.register_hook(reduce)
    weight.sum().backward()
    assert [future.value()[0][0] for future in futures] == [SIZE] * 4


def a_failed_wait_keeps_nothing_of_its_caller() -> None:
    """Though the work itself lives on, as MPI may still write to its tensors."""

    def wait() -> weakref.ref[torch.nn.Module]:
        model = torch.nn.Linear(2, 2)
        work = dist.barrier(async_op=True)
        future = work.get_future()
        mpi_backend.cancel("enough")
        for read in (work.wait, future.wait):
            with pytest.raises(CollectiveCancelledError, match="enough"):
                read()
        return weakref.ref(model)

    model = wait() if RANK == 0 else None
    WORLD.Barrier()
    mpi_backend.renew()
    gc.collect()
    assert model is None or model() is None


def data_moves_while_a_rank_computes() -> None:
    """A rank that waits gets its data though the others do something else until it has it."""
    tensor = torch.ones(1 << 20)
    with tempfile.TemporaryDirectory() as own:
        folder = Path(WORLD.bcast(own))
        work = dist.all_reduce(tensor, async_op=True)
        if RANK == 0:
            work.wait()
            (folder / "reduced").touch()
        else:
            appears(folder / "reduced")
        nothing_is_pending_soon()
        WORLD.Barrier()
        if RANK == 0:
            dist.recv(tensor, 1)
            (folder / "received").touch()
        elif RANK == 1:
            sending = dist.isend(tensor, 0)
            appears(folder / "received")
            sending.wait()
        WORLD.Barrier()


def works_that_nobody_waits_for_are_finished() -> None:
    tensors = [torch.ones(10) for _ in range(100)]
    for tensor in tensors:
        dist.all_reduce(tensor, async_op=True)
    dist.barrier()
    nothing_is_pending_soon()
    assert all(tensor.eq(SIZE).all() for tensor in tensors)


def threads_use_groups_of_their_own() -> None:
    groups = [dist.new_group() for _ in range(3)]
    errors = []

    def reduce_often(group: dist.ProcessGroup) -> None:
        try:
            for _ in range(100):
                all_reduce_works(group)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=reduce_often, args=(group,)) for group in groups]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    for group in groups:
        dist.destroy_process_group(group)


def a_new_group_waits_for_its_members_with_a_limit() -> None:
    """An error while a group is made leaves it out of order, and the others usable."""
    usable = dist.new_group()
    if RANK == 0:
        with takes(0.2, 3), pytest.raises(CollectiveTimeoutError, match="members of a new group"):
            dist.new_group(timeout=seconds(0.3))
    WORLD.Barrier()
    mpi_backend.renew()
    all_reduce_works()
    all_reduce_works(usable)
    dist.destroy_process_group(usable)


def making_a_group_can_be_cancelled() -> None:
    if RANK == 0:
        cancel, before = partial(mpi_backend.cancel, "enough"), list(mpi_backend._groups)
        with (
            struck(cancel, 2, when=lambda: mpi_backend._groups[-1] not in before),
            pytest.raises(CollectiveCancelledError, match="enough"),
        ):
            dist.new_group()
    WORLD.Barrier()
    mpi_backend.renew()
    all_reduce_works()


def a_cancel_reaches_what_is_about_to_begin() -> None:
    """It comes just before a group is opened, or before a collective is among those pending."""
    open_, make = Group.open, Work

    def cancelled_open(group: Group) -> None:
        mpi_backend.cancel("enough")
        open_(group)

    def cancelled_work(*arguments: Any) -> Work:
        mpi_backend.cancel("enough")
        return make(*arguments)

    for place, cancelled, begin in (
        ((Group, "open"), cancelled_open, dist.new_group),
        ((mpi_group, "Work"), cancelled_work, dist.barrier),
    ):
        if RANK == 0:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(*place, cancelled)
                with pytest.raises(CollectiveCancelledError, match="enough"):
                    begin()
            with pytest.raises(CollectiveCancelledError, match="enough"):
                dist.new_group()  # in which only the default group can know of it
        WORLD.Barrier()
        mpi_backend.renew()
        all_reduce_works()


def renew_can_be_tried_again() -> None:
    default = dist.group.WORLD
    before_s = default.timeout_s
    if RANK == LAST:
        default.set_timeout(seconds(0.3))
        with takes(0.2, 3), pytest.raises(CollectiveTimeoutError, match="fresh communicator"):
            mpi_backend.renew()
        default.set_timeout(seconds(before_s))
    WORLD.Barrier()
    mpi_backend.renew()
    all_reduce_works()


def a_monitored_barrier_names_the_missing() -> None:
    group = dist.new_group()
    WORLD.Barrier()
    if RANK == 0:
        with pytest.raises(CollectiveTimeoutError, match=rf"ranks \[{LAST}\] did not come"):
            group.monitored_barrier(seconds(3))
    elif RANK != LAST:
        with pytest.raises(CollectiveTimeoutError):
            group.monitored_barrier(seconds(4))
    WORLD.Barrier()
    mpi_backend.renew()
    group.monitored_barrier(seconds(10))
    dist.destroy_process_group(group)


def an_observer_sees_what_begins() -> None:
    begun = []
    dist.group.WORLD.observer = lambda work: begun.append(str(work.describe()))
    number = dist.group.WORLD.sequence
    all_reduce_works()
    dist.group.WORLD.observer = None
    all_reduce_works()
    assert begun == [
        f"all_reduce #{number} (float32 [1000], 4,000 bytes) of group '0', "
        f"ranks {', '.join(map(str, range(SIZE)))}"
    ]


def a_destroyed_group_says_so() -> None:
    group = dist.new_group()
    dist.destroy_process_group(group)
    with pytest.raises(CollectiveError, match="it was destroyed"):
        group.barrier()
    assert group not in mpi_backend.groups()


def the_store_is_shared() -> None:
    if RANK == LAST:
        store.set("greeting", "hello")
    assert store.get("greeting") == b"hello"
    numbers = WORLD.allgather(store.add("number", 1))
    assert sorted(numbers) == list(range(1, SIZE + 1))
    prefixed = dist.PrefixStore("mine", store)
    if RANK == 0:
        prefixed.set("key", b"\x00\xff")
        assert prefixed.compare_set("key", b"no", b"lost") == b"\x00\xff"
        assert prefixed.compare_set("key", b"\x00\xff", b"won") == b"won"
        prefixed.append("key", "!")
        store.set("large", "x" * (1 << 20))
    WORLD.Barrier()
    assert store.check(["mine/key"])
    assert not store.check(["mine/key", "absent"])
    assert store.multi_get(["mine/key", "greeting"]) == [b"won!", b"hello"]
    assert len(store.get("large")) == 1 << 20
    with takes(0.1, 3), pytest.raises(dist.DistStoreError, match=r"keys \['absent'\]"):
        store.wait(["absent"], seconds(0.2))
    with pytest.raises(ValueError, match="invalid literal"):
        store.add("greeting", 1)
    WORLD.Barrier()
    assert sum(WORLD.allgather(prefixed.delete_key("key"))) == 1
    assert not prefixed.check(["key"])


def opening_again_works() -> None:
    dist.destroy_process_group()
    assert mpi_backend.groups() == []
    open_group()
    all_reduce_works()


def open_group() -> None:
    dist.init_process_group("mpi4py", store=store, rank=RANK, world_size=SIZE, timeout=seconds(15))


if __name__ == "__main__":
    mpi_backend.register()
    store = Store(15)
    open_group()
    run_checks(
        [
            a_time_out_says_what_and_who,
            a_wait_of_ones_own_can_be_repeated,
            a_thread_sees_and_cancels_a_wait,
            an_interrupt_gets_into_a_wait,
            an_interrupt_gets_into_a_backward_and_training_goes_on,
            a_cancel_gets_into_a_backward,
            futures_can_be_waited_for_and_chained,
            a_future_tells_of_a_failure,
            a_future_taken_in_a_backward_is_completed_at_its_end,
            a_failed_wait_keeps_nothing_of_its_caller,
            data_moves_while_a_rank_computes,
            works_that_nobody_waits_for_are_finished,
            threads_use_groups_of_their_own,
            a_new_group_waits_for_its_members_with_a_limit,
            making_a_group_can_be_cancelled,
            a_cancel_reaches_what_is_about_to_begin,
            renew_can_be_tried_again,
            a_monitored_barrier_names_the_missing,
            an_observer_sees_what_begins,
            a_destroyed_group_says_so,
            the_store_is_shared,
            opening_again_works,
        ],
        recover=mpi_backend.renew,
    )
