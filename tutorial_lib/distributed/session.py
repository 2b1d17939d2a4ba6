"""The one distributed session of a process: opened from whatever started it, closed in order.

torch has one default process group per process, so there is one session; it is the only global
of this library.
"""

from __future__ import annotations

import atexit
import io
import os
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from tutorial_lib.distributed import gloo_sockets, gpus, rendezvous
from tutorial_lib.distributed.rendezvous import MPI_BACKEND
from tutorial_lib.distributed.topology import Topology, detect, threads_per_rank

# A thread of gloo lets go of its last tensors after the last operation has ended, and for that
# needs Python: an interpreter that is ending by then makes it abort the process.
GLOO_GRACE_S = 0.1

TIMEOUT_S = 600.0  # no rank is this late in earnest; one that is has died or taken another path


@dataclass(frozen=True)
class Session:
    """This rank's view of the group.

    Attributes:
        topology: Rank, world size and their local counterparts.
        backend: Of the process group: "mpi4py" (ours, see ``mpi_backend``), "gloo", "nccl", or
            another that torch knows; None in a process of its own, which has no group.
        device: Where this rank keeps its tensors.
        threads: Number of threads torch uses in this rank.
        timeout_s: How long a rank waits in a collective for the others, in seconds.
        note: Why the ranks don't have a GPU each, where one could expect it; see
            ``gpu_placement``.
    """

    topology: Topology
    backend: str | None
    device: torch.device
    threads: int
    timeout_s: float = TIMEOUT_S
    note: str = ""

    @property
    def rank(self) -> int:
        """This rank."""
        return self.topology.rank

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self.topology.world_size

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0, which prints, draws and saves."""
        return self.topology.is_main

    def barrier(self) -> None:
        """Wait until every rank has come here. **Distributed:** collective."""
        if self.world_size > 1:
            dist.barrier()

    def all_reduce_sum(self, values: torch.Tensor) -> torch.Tensor:
        """Replace a tensor by its sum over the ranks, in place, and return it.

        **Distributed:** collective; afterwards equal on all ranks.
        """
        if self.world_size > 1:
            dist.all_reduce(values)
        return values


_session: Session | None = None


def current() -> Session | None:
    """The open session, or None."""
    return _session


def start(
    backend: str | None = None, timeout_s: float = TIMEOUT_S, threads: int | None = None
) -> Session:
    """Open the session, or return the one that is open: calling twice does no harm.

    Args:
        backend: Of the process group; None chooses NCCL where every rank has a GPU of its own;
            otherwise MPI's own, "mpi4py", where MPI started the ranks, and gloo elsewhere. What
            ranks do without a GPU each is up to GAN_TUTORIAL_DEVICE: see ``gpu_placement``.
        timeout_s: How long a rank waits in a collective for the others, in seconds.
        threads: For torch in this rank; None takes ``OMP_NUM_THREADS``, or else a fair share
            of the cores.

    Returns:
        The session. Alone (neither under MPI nor torchrun) its world size is 1 and there is
        no process group.

    Raises:
        ValueError: The open session has another backend (call ``stop()`` first), the
            backend "mpi4py" is asked for where MPI didn't start the ranks, or RANK, WORLD_SIZE,
            MASTER_ADDR and MASTER_PORT are incomplete or make no sense; or NCCL is asked for, and
            there are fewer GPUs than ranks.
        RuntimeError: torch's process group is open, but not by us: leave that to ``start``.
        OSError: MASTER_PORT is taken on rank 0's host: set another one on all ranks.

    **Distributed:** collective when it opens the session.
    """
    global _session
    if _session is not None:
        if backend not in (None, _session.backend) and _session.world_size > 1:
            raise ValueError(
                f"the session runs on {_session.backend!r}, not on {backend!r}: "
                "call session.stop() on every rank first"
            )
        return _session
    if dist.is_initialized():
        raise RuntimeError(
            "torch's process group is open already: call session.start() in place of "
            "torch.distributed.init_process_group()"
        )
    topology = detect()
    timeout = timedelta(seconds=timeout_s)
    if topology.launcher != "mpi" and topology.world_size > 1 and backend == MPI_BACKEND:
        raise ValueError(
            f"backend {MPI_BACKEND!r} needs ranks that MPI started: start them with mpiexec, "
            "or use backend 'gloo'"
        )
    store = None
    if topology.launcher == "environment" and topology.world_size > 1:
        store = rendezvous.store_at_master(topology, timeout)
        topology = rendezvous.locate(topology, store)
    if threads is None and "OMP_NUM_THREADS" not in os.environ:
        threads = threads_per_rank(topology.local_world_size)
    if threads is not None:
        torch.set_num_threads(threads)
    placement = gpus.choose(topology, backend, store, timeout)
    device = torch.device("cpu")
    if placement.gpu is not None:
        device = torch.device("cuda", placement.gpu)
        torch.cuda.set_device(device)
    if topology.world_size == 1:
        backend = None
    else:
        backend = placement.backend
        if topology.launcher == "mpi":
            store = rendezvous.store_under_mpi(topology, backend, timeout)
        _open_group(topology, backend, device, timeout, store)
    threads = torch.get_num_threads()
    _session = Session(topology, backend, device, threads, timeout_s, placement.note)
    return _session


def stop() -> None:
    """Close the session; without one, do nothing.

    Called at exit too, before the interpreter takes its threads down.

    **Distributed:** every rank should call it, but none waits for the others.
    """
    global _session
    if _session is not None and dist.is_initialized():
        has_gloo = any("gloo" in name for name, _ in dist.distributed_c10d._world.pg_map.values())
        dist.destroy_process_group()
        if _session.backend == MPI_BACKEND:
            from tutorial_lib.distributed import mpi_store

            mpi_store.close_all()
        gloo_sockets.forget()
        if has_gloo:
            time.sleep(GLOO_GRACE_S)
    _session = None


def is_renewable() -> bool:
    """Whether ``renew`` can open this session's group anew: MPI tells the ranks where."""
    return _session is not None and _session.backend == "gloo" and _is_under_mpi(_session)


def renew() -> None:
    """Replace the group of a session that runs on gloo, after an error or an interrupt.

    A group over MPI is renewed by ``mpi_backend.renew``, and stays the same object.

    **Distributed:** collective over all ranks.
    """
    assert _session is not None  # see is_renewable
    assert _session.backend is not None
    if dist.is_initialized():
        dist.destroy_process_group()
        gloo_sockets.forget()
    topology, timeout = _session.topology, timedelta(seconds=_session.timeout_s)
    store = rendezvous.store_under_mpi(topology, _session.backend, timeout)
    _open_group(topology, _session.backend, _session.device, timeout, store)


def _is_under_mpi(session: Session) -> bool:
    return session.topology.launcher == "mpi" and session.world_size > 1


atexit.register(stop)


@contextmanager
def script(backend: str | None = None) -> Iterator[Session]:
    """The session of a whole program: ``with session.script() as ranks: ...``.

    When one rank fails, it prints its error under its rank's name and ends the others too,
    which would otherwise wait for it.

    Args:
        backend: See ``start``.

    **Distributed:** collective.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        # mpiexec mixes what the ranks write: let that be whole lines, also under `python -u`
        sys.stdout.reconfigure(line_buffering=True, write_through=False)
    try:
        session = start(backend)
        if session.is_main and session.note:
            print(f"note: {session.note}", file=sys.stderr, flush=True)
        yield session
    except BaseException as error:
        if isinstance(error, SystemExit) and not error.code:
            raise
        topology = _session.topology if _session is not None else None
        if topology is None or topology.launcher != "mpi" or topology.world_size == 1:
            raise
        code = 130 if isinstance(error, KeyboardInterrupt) else 1
        if not isinstance(error, SystemExit):
            text = traceback.format_exc()
            sys.stderr.write(f"rank {topology.rank} of {topology.world_size} failed:\n{text}")
        elif isinstance(error.code, int):
            code = error.code
        else:
            sys.stderr.write(f"rank {topology.rank} of {topology.world_size}: {error.code}\n")
        sys.stdout.flush()
        sys.stderr.flush()
        with suppress(Exception):  # the others must end, whatever state the group is in
            stop()  # a group's own threads must not meet the exit inside MPI_Abort
        from mpi4py import MPI

        MPI.COMM_WORLD.Abort(code)
    finally:
        stop()


def _open_group(
    topology: Topology,
    backend: str,
    device: torch.device,
    timeout: timedelta,
    store: dist.Store | None,
) -> None:
    """Open torch's default process group; without a store, torchrun has one. Collective."""
    noting = gloo_sockets.noted() if backend == "gloo" else nullcontext()
    with rendezvous.gloo_on_loopback(topology.is_one_host), noting:
        dist.init_process_group(
            backend,
            store=store,
            rank=topology.rank,
            world_size=topology.world_size,
            timeout=timeout,
            device_id=device if device.type == "cuda" else None,
        )
