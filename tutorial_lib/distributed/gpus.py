"""The GPUs that this process sees, and what the ranks tell each other of theirs."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, replace
from datetime import timedelta

import torch
import torch.distributed as dist

from tutorial_lib.distributed import gpu_placement, rendezvous
from tutorial_lib.distributed.gpu_placement import Placement, Seat
from tutorial_lib.distributed.topology import Topology


def own_seat(topology: Topology) -> Seat:
    """What this rank has to compute on.

    Args:
        topology: Its place.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "all")
    names = [
        str(getattr(torch.cuda.get_device_properties(gpu), "uuid", f"{gpu} of {visible}"))
        for gpu in range(torch.cuda.device_count())
    ]
    has_nccl = dist.is_nccl_available()
    wish = gpu_placement.own_wish()
    return Seat(topology.host, topology.local_rank, tuple(names), has_nccl, wish)


def choose(
    topology: Topology, backend: str | None, store: dist.Store | None, timeout: timedelta
) -> Placement:
    """Decide where this rank computes and over what the ranks talk.

    Under torchrun the ranks can't speak before they have a group: there each host's ranks decide
    for themselves, which is right as long as all hosts have as many GPUs.

    Args:
        topology: This rank's place.
        backend: That the user has chosen; None chooses.
        store: Where the ranks meet, unless MPI or torchrun has started them.
        timeout: For the others to say what they have.

    Returns:
        The placement; all ranks' agree.

    Raises:
        ValueError: NCCL was chosen, and not every rank can have a GPU of its own; or the ranks'
            GAN_TUTORIAL_DEVICE differ, or make no sense. All ranks raise it.
        TimeoutError: A rank did not say what it has.

    **Distributed:** collective, except under torchrun.
    """
    own = own_seat(topology)
    alike = [replace(own, local_rank=number) for number in range(topology.local_world_size)]
    seats, number = alike, topology.local_rank
    if topology.world_size > 1 and (topology.launcher == "mpi" or store is not None):
        told = rendezvous.exchange(json.dumps(asdict(own)), topology, store, timeout)
        seats = [
            Seat(**{**fields, "gpus": tuple(fields["gpus"])}) for fields in map(json.loads, told)
        ]
        number = topology.rank
    staged = rendezvous.MPI_BACKEND if topology.launcher == "mpi" else "gloo"
    return gpu_placement.place(seats, number, staged, gpu_placement.common_wish(seats), backend)
