"""Who computes on which GPU: decided without any, for 0 to 8 of them and 1 to 8 ranks a host."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import timedelta

import pytest
import torch.distributed as dist

from tutorial_lib.distributed import gpus
from tutorial_lib.distributed.gpu_placement import (
    DEVICE_VARIABLE,
    Placement,
    Seat,
    common_wish,
    place,
)
from tutorial_lib.distributed.topology import Topology

GPUS, RANKS = (0, 1, 2, 8), range(1, 9)


def seats(*hosts: tuple[int, int], has_nccl: bool = True) -> list[Seat]:
    """Ranks and GPUs of each host; all ranks of a host see all its GPUs."""
    return [
        Seat(f"host{host}", local_rank, tuple(f"GPU-{host}-{n}" for n in range(count)), has_nccl)
        for host, (ranks, count) in enumerate(hosts)
        for local_rank in range(ranks)
    ]


def everyone(found: list[Seat], *arguments: str) -> list[Placement]:
    return [place(found, rank, "mpi4py", *arguments) for rank in range(len(found))]


def loads(found: list[Seat], placed: list[Placement]) -> list[int]:
    """How many ranks each GPU that is used has."""
    names = [seat.gpus[p.gpu] for seat, p in zip(found, placed, strict=True) if p.gpu is not None]
    return list(Counter(names).values())


@pytest.mark.parametrize("hosts", [1, 2])
@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("count", GPUS)
def test_one_rank_per_gpu_or_the_same_way_round_it_on_all_ranks(hosts, ranks, count):
    found = seats(*[(ranks, count)] * hosts)
    for wanted in ("auto", "gpu", "cpu"):
        placed = everyone(found, wanted)
        assert len({(p.backend, p.note, p.gpu is None) for p in placed}) == 1
        has_own = count >= ranks and wanted != "cpu"
        assert (placed[0].backend == "nccl") == has_own
        if has_own:
            assert [p.gpu for p in placed] == list(range(ranks)) * hosts
            assert loads(found, placed) == [1] * ranks * hosts
            assert placed[0].note == ""
        elif wanted == "gpu" and count:
            load = loads(found, placed)
            assert len(load) == count * hosts
            assert max(load) - min(load) <= 1
        else:
            assert {p.gpu for p in placed} == {None}
        is_news = wanted != "cpu" and not has_own and (count > 0 or wanted == "gpu")
        assert bool(placed[0].note) == is_news


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("count", GPUS)
def test_nccl_that_was_asked_for_is_given_or_refused_with_the_numbers(ranks, count):
    found = seats((ranks, count))
    if count >= ranks:
        assert {p.backend for p in everyone(found, "auto", "nccl")} == {"nccl"}
        return
    with pytest.raises(ValueError, match=r"host0 has \d ranks? and (no|\d) GPUs?: start fewer"):
        everyone(found, "auto", "nccl")


def test_what_is_said_names_host_and_numbers_and_what_to_do():
    said = everyone(seats((2, 2), (4, 2)))[0].note
    assert said.startswith("host1 has 4 ranks and 2 GPUs, and NCCL takes one rank per GPU")
    assert "all ranks compute on CPUs and talk by mpi4py" in said
    assert f"{DEVICE_VARIABLE}=gpu" in said
    shared = everyone(seats((2, 2), (4, 2)), "gpu")[0].note
    assert "ranks share GPUs, and talk by mpi4py, through the host's memory" in shared


def test_one_host_without_gpus_decides_for_all():
    for wanted in ("auto", "gpu"):
        placed = everyone(seats((2, 2), (2, 0)), wanted)
        assert {(p.gpu, p.backend) for p in placed} == {(None, "mpi4py")}
        assert "torch sees no GPU on host1" in placed[0].note


def test_a_launcher_that_shows_each_rank_its_own_gpu_is_understood():
    own = [Seat("a", n, (f"GPU-{n}",), True) for n in range(4)]
    assert [(p.gpu, p.backend) for p in everyone(own)] == [(0, "nccl")] * 4
    pairs = [Seat("a", n, (f"GPU-{n // 2}",), True) for n in range(4)]  # two ranks on each of two
    assert {p.backend for p in everyone(pairs)} == {"mpi4py"}
    assert [p.gpu for p in everyone(pairs, "gpu")] == [0, 0, 0, 0]


def test_without_nccl_each_rank_keeps_its_gpu_and_talks_through_the_host():
    placed = everyone(seats((2, 2), has_nccl=False))
    assert [(p.gpu, p.backend) for p in placed] == [(0, "mpi4py"), (1, "mpi4py")]
    assert "torch has no NCCL" in placed[0].note


def test_a_chosen_backend_other_than_nccl_means_cpus_unless_gpus_are_asked_for():
    found = seats((2, 2))
    assert everyone(found, "auto", "gloo") == [Placement(None, "gloo")] * 2
    placed = everyone(found, "gpu", "gloo")
    assert [(p.gpu, p.backend) for p in placed] == [(0, "gloo"), (1, "gloo")]
    assert "backend 'gloo' was chosen" in placed[0].note


def test_the_users_wish_is_read_and_a_wrong_one_is_named(monkeypatch):
    monkeypatch.delenv(DEVICE_VARIABLE, raising=False)
    assert gpus.own_seat(Topology()).wish == "auto"
    monkeypatch.setenv(DEVICE_VARIABLE, "gpu")
    assert common_wish([gpus.own_seat(Topology())]) == "gpu"
    monkeypatch.setenv(DEVICE_VARIABLE, "tpu")
    with pytest.raises(ValueError, match=r"'tpu' on rank 0 \(.*\): it must be one of auto, gpu"):
        common_wish([gpus.own_seat(Topology())])


@pytest.mark.parametrize(
    ("wishes", "told"),
    [
        (("gpu", "cpu"), "'gpu' on rank 0 (a); 'cpu' on rank 1 (b): it must be one of"),
        (("gpu", "auto"), "'gpu' on rank 0 (a); 'auto' on rank 1 (b): it must be one of"),
        (("auto", "tpu"), "'auto' on rank 0 (a); 'tpu' on rank 1 (b): it must be one of"),
    ],
)
def test_wishes_that_differ_are_refused_on_all_ranks_alike(monkeypatch, wishes, told):
    store = dist.HashStore()
    own = [Seat(host, 0, ("GPU",), True, wish) for host, wish in zip("ab", wishes, strict=True)]
    for rank, seat in enumerate(own):
        store.set(f"said by rank {rank}", json.dumps(seat.__dict__))
    for rank, seat in enumerate(own):
        monkeypatch.setattr(gpus, "own_seat", lambda topology, seat=seat: seat)
        monkeypatch.setenv(DEVICE_VARIABLE, wishes[rank])
        topology = Topology(rank, 2, 0, 1, "environment", seat.host)
        with pytest.raises(ValueError, match=re.escape(told)):
            gpus.choose(topology, None, store, timedelta(seconds=5))


def test_ranks_learn_of_each_others_gpus_by_a_store(monkeypatch):
    store = dist.HashStore()

    topology = Topology(1, 2, 0, 1, "environment", "b")
    monkeypatch.setattr(gpus, "own_seat", lambda topology: Seat("b", 0, (), True))
    store.set("said by rank 0", json.dumps(seats((1, 3))[0].__dict__))
    placed = gpus.choose(topology, None, store, timedelta(seconds=5))
    assert (placed.gpu, placed.backend) == (None, "gloo")
    assert "torch sees no GPU on b" in placed.note


EXCHANGE = """
from datetime import timedelta
from tutorial_lib.distributed import rendezvous
from tutorial_lib.distributed.topology import detect
me = detect()
told = rendezvous.exchange("x" * me.rank * 3000 + str(me.rank), me, None, timedelta(seconds=30))
assert [len(text) for text in told] == [3000 * rank + 1 for rank in range(me.world_size)]
assert [text[-1] for text in told] == ["0", "1", "2"]
print("ok")
"""

WAITS_FOR_NOBODY = """
import os, time
from datetime import timedelta
from tutorial_lib.distributed import rendezvous
from tutorial_lib.distributed.topology import detect
me = detect()
if me.rank == 1:
    time.sleep(60)
try:
    rendezvous.exchange("", me, None, timedelta(seconds=0.5))
except TimeoutError as error:
    print(error, flush=True)
os._exit(3)
"""


@pytest.mark.mpi
def test_ranks_tell_each_other_texts_of_any_length_by_mpi(mpiexec):
    assert mpiexec(3, "-c", EXCHANGE).stdout.split() == ["ok"] * 3


@pytest.mark.mpi
def test_a_rank_that_says_nothing_is_an_error_in_time(mpiexec):
    done = mpiexec(2, "-c", WAITS_FOR_NOBODY, check=False, timeout_s=50)
    assert "rank 0 waited 0.5 s for what the others have to say" in done.stdout
