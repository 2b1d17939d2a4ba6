"""How long a step of the GAN takes on these ranks, and what its messages cost."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist

from tutorial_lib.distributed import session, trace
from tutorial_lib.distributed.cost_fit import Timing
from tutorial_lib.distributed.timeline import COMMUNICATE, COMPUTE, WAIT, StepTrace
from tutorial_lib.learners.distributed_learner import DistributedLearner
from tutorial_lib.training.gan import BasicGan, GanConfig

WARM_UP_STEPS = 3
ADDED_BYTES = 1 << 20  # of the tensors whose addition is timed: they stay in the cache
BUDGET_S = 0.02  # of one size of message, each time it is timed
IN_A_ROW = (2, 200)  # at least and at most
TURNS = 9


class StepTime(NamedTuple):
    """What one step takes; the parts are means over the ranks.

    Attributes:
        ranks: Their number.
        minibatch_size: Samples of all ranks together.
        bits: In which an element of a gradient travels.
        seconds: Of the step.
        compute_s: Of it, in which a rank worked.
        wait_s: In which it waited for a rank that was later.
        transfer_s: In which all ranks were there and the data moved.
        bytes_sent: By rank 0, for gradients.
    """

    ranks: int
    minibatch_size: int
    bits: int
    seconds: float
    compute_s: float
    wait_s: float
    transfer_s: float
    bytes_sent: float

    @property
    def samples_per_s(self) -> float:
        """Samples of all ranks in a second."""
        return self.minibatch_size / self.seconds

    @property
    def communication(self) -> float:
        """Share of a rank's time that isn't work."""
        return (self.wait_s + self.transfer_s) / self.seconds


class TimedGan:
    """A GAN whose steps are timed, some at a time.

    Args:
        minibatch_size: Samples of all ranks together.
        bits: In which an element of a gradient travels: 1, 2, 4, 8, 16, or 32 for float32.
        data_dir: Folder with MNIST; None for the bundled files.

    **Distributed:** collective in a session of several ranks, and so are its methods.
    """

    def __init__(self, minibatch_size: int, bits: int = 32, data_dir: str | None = None) -> None:
        self.config = GanConfig(
            minibatch_size=minibatch_size, num_quantization_bits=bits, data_dir=data_dir
        )
        self.gan = BasicGan(self.config, is_verbose=False)
        for _ in range(WARM_UP_STEPS):
            self.gan.step()

    def bytes_sent(self) -> int:
        """Bytes that this rank has sent for gradients so far."""
        learners = [*self.gan.d_trainer.parameter_learners, *self.gan.g_trainer.parameter_learners]
        return sum(one.bytes_sent for one in learners if isinstance(one, DistributedLearner))

    def time(self, steps: int) -> StepTime:
        """Time so many steps.

        Returns:
            What one of them took; equal on all ranks.

        Raises:
            RuntimeError: Several ranks are on another backend than "mpi4py", which tells of no
                waits: start them with mpiexec, or from a notebook.
        """
        ranks = session.start()
        before = self.bytes_sent()
        if ranks.world_size == 1:
            start_s = time.perf_counter()
            for _ in range(steps):
                self.gan.step()
            step_s = (time.perf_counter() - start_s) / steps
            return self._found(1, step_s, {COMPUTE: step_s}, 0.0)
        ranks.barrier()
        with StepTrace() as traced:
            for _ in range(steps):
                self.gan.step()
        sent = torch.tensor([(self.bytes_sent() - before) / steps], dtype=torch.float64)
        dist.broadcast(sent, 0)
        timeline = traced.gather()
        lengths = {rank: lane[-1].stop_s - lane[0].start_s for rank, lane in timeline.lanes.items()}
        parts_s = {
            kind: statistics.fmean(
                share * lengths[rank] / steps for rank, share in timeline.share(kind).items()
            )
            for kind in (COMPUTE, WAIT, COMMUNICATE)
        }
        step_s = statistics.fmean(lengths.values()) / steps
        return self._found(ranks.world_size, step_s, parts_s, float(sent))

    def _found(
        self, ranks: int, step_s: float, parts_s: Mapping[str, float], sent: float
    ) -> StepTime:
        compute_s, wait_s, transfer_s = (
            parts_s.get(kind, 0.0) for kind in (COMPUTE, WAIT, COMMUNICATE)
        )
        size, bits = self.config.minibatch_size, self.config.num_quantization_bits
        return StepTime(ranks, size, bits, step_s, compute_s, wait_s, transfer_s, sent)

    def messages(self) -> list[tuple[str, int]]:
        """The collectives of one step in their order: torch's name of each, and its bytes."""
        found: list[trace.Waited] = []
        trace.listeners.append(found.append)
        try:
            self.gan.step()
        finally:
            trace.listeners.remove(found.append)
        return [(waited.operation, waited.nbytes) for waited in found]


def time_all_reduces(
    sizes_bytes: Iterable[int], ranks: int | None = None, turns: int = TURNS
) -> list[Timing]:
    """Time all-reduces of float32 tensors, a row of each size in turn.

    Args:
        sizes_bytes: 1 or more each; a size is cut to whole float32 numbers, below 4 to bytes.
        ranks: How many of the ranks take part, the first ones; None for all.
        turns: Of which the quickest counts, the one that other work has disturbed least.

    Returns:
        What one took, as rank 0 saw it; equal on all ranks. Nothing for one rank.

    **Distributed:** collective for all ranks, those included that don't take part.
    """

    def begin(nbytes: int, group: dist.ProcessGroup, size: int) -> tuple[Callable[[], object], int]:
        tensor = torch.zeros(nbytes // 4) if nbytes >= 4 else torch.zeros(nbytes, dtype=torch.uint8)
        return lambda: dist.all_reduce(tensor, group=group), tensor.nbytes

    return _time(begin, list(sizes_bytes), ranks, turns)


def time_exchanges(
    sizes_bytes: Iterable[int], ranks: int | None = None, turns: int = TURNS
) -> list[Timing]:
    """Time all-to-alls of tensors that are dealt out evenly; see ``time_all_reduces``.

    Args:
        sizes_bytes: Of a rank's whole tensor; rounded up to equal parts for all ranks.
        ranks: How many of the ranks take part, the first ones; None for all.
        turns: See there.

    **Distributed:** collective for all ranks, those included that don't take part.
    """

    def begin(nbytes: int, group: dist.ProcessGroup, size: int) -> tuple[Callable[[], object], int]:
        sent = torch.zeros(-(-nbytes // (4 * size)) * size)
        received = torch.empty_like(sent)
        return lambda: dist.all_to_all_single(received, sent, group=group), sent.nbytes

    return _time(begin, list(sizes_bytes), ranks, turns)


Begin = Callable[[int, dist.ProcessGroup, int], tuple[Callable[[], object], int]]


def _time(begin: Begin, sizes: Sequence[int], members: int | None, turns: int) -> list[Timing]:
    ranks = session.start()
    members = ranks.world_size if members is None else members
    if not 1 <= members <= ranks.world_size:
        raise ValueError(f"{members} ranks of {ranks.world_size}: take from 1 to all of them")
    if members == 1:
        return []
    group = dist.new_group(list(range(members)))
    found: list[Timing] = []
    if ranks.rank < members:
        works = [begin(nbytes, group, members) for nbytes in sizes]
        repeats = []
        for run, _ in works:
            run()
            once = torch.tensor([_seconds(run, 2, group)], dtype=torch.float64)
            dist.broadcast(once, 0, group=group)  # all must agree how often
            repeats.append(min(max(int(BUDGET_S / float(once)), IN_A_ROW[0]), IN_A_ROW[1]))
        rows = [
            [_seconds(run, times, group) for (run, _), times in zip(works, repeats, strict=True)]
            for _ in range(turns)
        ]
        quickest = [min(taken) for taken in zip(*rows, strict=True)]
        found = [Timing(members, n, s) for (_, n), s in zip(works, quickest, strict=True)]
        dist.destroy_process_group(group)
    told = [found]
    dist.broadcast_object_list(told, 0)
    return told[0]


def _seconds(run: Callable[[], object], times: int, group: dist.ProcessGroup) -> float:
    """What one of some in a row takes."""
    dist.barrier(group)
    start_s = time.perf_counter()
    for _ in range(times):
        run()
    return (time.perf_counter() - start_s) / times


def add_s_per_byte(turns: int = 5, in_a_row: int = 20) -> float:
    """Time how long it takes to add one float32 tensor to another, per byte of one of them.

    **Distributed:** not collective, but the ranks of a host should all do it at once: they share
    the way to the memory, as they do in an all-reduce.
    """
    total, other = torch.zeros(ADDED_BYTES // 4), torch.ones(ADDED_BYTES // 4)
    taken = []
    for _ in range(turns + 1):
        start_s = time.perf_counter()
        for _ in range(in_a_row):
            total.add_(other)
        taken.append((time.perf_counter() - start_s) / in_a_row / ADDED_BYTES)
    return min(taken[1:])
