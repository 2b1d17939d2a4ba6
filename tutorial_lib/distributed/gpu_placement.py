"""Which device each rank computes on, and over what the ranks talk: decided alike on all ranks.

One rank per GPU and NCCL is the rule. NCCL refuses two ranks on one GPU, so with more ranks than
GPUs the ranks compute on CPUs, or, if GPUs are asked for, share them and talk through the host's
memory. One host that lacks a GPU decides for all: ranks of one group must talk over one backend.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

Wish = Literal["auto", "gpu", "cpu"]

DEVICE_VARIABLE = "GAN_TUTORIAL_DEVICE"
NCCL = "nccl"


@dataclass(frozen=True)
class Seat:
    """What one rank has to compute on.

    Attributes:
        host: Name of its host.
        local_rank: Its number among the ranks of that host.
        gpus: A name for each GPU that it sees, in torch's order; the same GPU has the same name in
            all ranks of a host.
        has_nccl: Whether its torch has NCCL.
        wish: What its environment variable GAN_TUTORIAL_DEVICE says, unchecked.
    """

    host: str
    local_rank: int
    gpus: tuple[str, ...]
    has_nccl: bool
    wish: str = "auto"


@dataclass(frozen=True)
class Placement:
    """Where one rank computes, and how it talks.

    Attributes:
        gpu: Its GPU, by torch's number in this rank; None for the CPU.
        backend: Of the process group.
        note: What a reader who has, or expects, GPUs should know; equal on all ranks, and empty
            when each rank has a GPU of its own.
    """

    gpu: int | None
    backend: str
    note: str = ""


def own_wish() -> str:
    """What the environment variable GAN_TUTORIAL_DEVICE says here, unchecked."""
    return os.environ.get(DEVICE_VARIABLE) or "auto"


def common_wish(seats: Sequence[Seat]) -> Wish:
    """What all ranks are to compute on; every rank that knows the same seats finds the same.

    Args:
        seats: Of all ranks, in rank order.

    Raises:
        ValueError: A rank's wish is none of auto, gpu and cpu, or the ranks' wishes differ.
    """
    wishes = list(dict.fromkeys(seat.wish for seat in seats))
    known = {name: name for name in get_args(Wish)}
    if len(wishes) == 1 and wishes[0] in known:
        return known[wishes[0]]  # type: ignore[no-any-return]
    who = "; ".join(f"{text!r} on {_holders(seats, text)}" for text in wishes)
    raise ValueError(
        f"{DEVICE_VARIABLE} is {who}: it must be one of {', '.join(known)}, the same on all ranks"
    )


def _holders(seats: Sequence[Seat], text: str) -> str:
    """The ranks with a wish, by host: "rank 0 (node1), ranks 2, 3 (node2)"."""
    ranks: dict[str, list[str]] = {}
    for rank, seat in enumerate(seats):
        if seat.wish == text:
            ranks.setdefault(seat.host, []).append(str(rank))
    return ", ".join(
        f"rank{'s' if len(here) > 1 else ''} {', '.join(here)} ({host})"
        for host, here in ranks.items()
    )


def place(
    seats: Sequence[Seat], rank: int, staged: str, wanted: Wish = "auto", backend: str | None = None
) -> Placement:
    """Decide for one rank; every rank that knows the same seats decides alike.

    Args:
        seats: Of all ranks, in rank order.
        rank: Whom to decide for.
        staged: The backend that works without GPUs, and moves tensors of GPUs through the host's
            memory: "mpi4py" or "gloo".
        wanted: On what to compute: "auto" takes GPUs when each rank has one of its own, "gpu" has
            ranks share them otherwise, "cpu" leaves them alone.
        backend: One that the user has chosen; None chooses.

    Returns:
        Where it computes and how it talks.

    Raises:
        ValueError: NCCL was chosen, and not every rank can have a GPU of its own.
    """
    backend_without = backend or staged
    if wanted == "cpu" and backend != NCCL:
        return Placement(None, backend_without)
    own = [_own_gpu(seats, number) for number in range(len(seats))]
    has_nccl = all(seat.has_nccl for seat in seats)
    if None not in own and (has_nccl or backend == NCCL):
        if backend in (None, NCCL):
            return Placement(own[rank], NCCL)
    elif backend == NCCL:
        raise ValueError(
            f"NCCL needs a GPU for each rank, but {_shortage(seats)}: start fewer ranks, or use "
            f"backend {staged!r}"
        )
    if wanted == "auto" and backend is not None:
        return Placement(None, backend)
    talk = f"talk by {backend_without}"
    if without := sorted({seat.host for seat in seats if not seat.gpus}):
        is_expected = wanted == "auto" and not any(seat.gpus for seat in seats)
        note = f"torch sees no GPU on {', '.join(without)}: all ranks compute on CPUs and {talk}"
        return Placement(None, backend_without, "" if is_expected else note)
    if None not in own:
        why = "torch has no NCCL" if not has_nccl else f"backend {backend!r} was chosen"
        note = f"{why}: each rank has its GPU, and the ranks {talk}, through the host's memory"
        return Placement(own[rank], backend_without, note)
    few = f"{_shortage(seats)}, and NCCL takes one rank per GPU"
    if wanted == "auto":
        return Placement(
            None,
            backend_without,
            f"{few}: all ranks compute on CPUs and {talk}. Start fewer ranks, or have them share "
            f"GPUs by {DEVICE_VARIABLE}=gpu",
        )
    seat = seats[rank]
    note = f"{few}: ranks share GPUs, and {talk}, through the host's memory"
    return Placement(_shared_gpu(seats, seat), backend_without, note)


def _own_gpu(seats: Sequence[Seat], rank: int) -> int | None:
    """The GPU that this rank alone computes on; None when there is none for it.

    Ranks of a host see the same GPUs, or a launcher has given each its own.
    """
    seat = seats[rank]
    others = [s for s in seats if s.host == seat.host and s.local_rank != seat.local_rank]
    if seat.gpus and not any(set(seat.gpus) & set(other.gpus) for other in others):
        return 0
    if all(other.gpus == seat.gpus for other in others) and seat.local_rank < len(seat.gpus):
        return seat.local_rank if len(others) < len(seat.gpus) else None
    return None


def _shared_gpu(seats: Sequence[Seat], seat: Seat) -> int:
    """A GPU for a rank that shares it, so that all GPUs of a host have about as many ranks."""
    taken: Counter[str] = Counter()
    for other in sorted((s for s in seats if s.host == seat.host), key=lambda s: s.local_rank):
        chosen = min(range(len(other.gpus)), key=lambda number: taken[other.gpus[number]])
        if other.local_rank == seat.local_rank:
            return chosen
        taken[other.gpus[chosen]] += 1
    raise ValueError(f"{seat} is not among the seats")


def _shortage(seats: Sequence[Seat]) -> str:
    """Which hosts have more ranks than GPUs: "a has 4 ranks and 2 GPUs"."""
    parts = []
    for host in dict.fromkeys(seat.host for seat in seats):
        here = [seat for seat in seats if seat.host == host]
        gpus = len({gpu for seat in here for gpu in seat.gpus})
        if any(_own_gpu(seats, number) is None for number, s in enumerate(seats) if s.host == host):
            parts.append(f"{host} has {_count(len(here), 'rank')} and {_count(gpus, 'GPU')}")
    return "; ".join(parts)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number or 'no'} {what}s"
