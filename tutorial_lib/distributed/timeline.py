"""Who computed, waited and communicated when: a stretch of work on all ranks, by one clock."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from tutorial_lib.data.atomic import atomic_write
from tutorial_lib.distributed import session, trace
from tutorial_lib.distributed.trace import Waited

if TYPE_CHECKING:
    from tutorial_lib.display.picture import Picture

PING_PONGS = 10

COMPUTE, WAIT, COMMUNICATE = "compute", "wait", "communicate"


@dataclass(frozen=True)
class Record:
    """What one rank noted down, by its own clock.

    Attributes:
        begun_s: Start of the stretch.
        ended_s: Its end.
        waits: In between, in order.
    """

    begun_s: float
    ended_s: float
    waits: tuple[Waited, ...]


@dataclass(frozen=True)
class Timed:
    """A stretch of time in which a rank did one thing.

    Attributes:
        kind: COMPUTE, WAIT (for the last rank to begin the same operation) or COMMUNICATE.
        start_s: By rank 0's clock, from the first start of all ranks.
        stop_s: Likewise.
        operation: torch's name for what it waited for; "" when it computed.
        nbytes: Of that operation.
    """

    kind: str
    start_s: float
    stop_s: float
    operation: str = ""
    nbytes: int = 0


@dataclass(frozen=True)
class Timeline:
    """What each rank did when.

    Attributes:
        lanes: By rank, without gaps.
    """

    lanes: Mapping[int, Sequence[Timed]]

    def share(self, kind: str) -> dict[int, float]:
        """Share of its time that each rank spent so."""
        return {
            rank: sum(span.stop_s - span.start_s for span in lane if span.kind == kind)
            / (lane[-1].stop_s - lane[0].start_s)
            for rank, lane in self.lanes.items()
        }

    def picture(self) -> Picture:
        """Draw a lane for each rank."""
        from tutorial_lib.display.ranks import rank_timeline

        return rank_timeline(
            {
                rank: [(span.kind, span.start_s, span.stop_s) for span in lane]
                for rank, lane in self.lanes.items()
            }
        )

    def write_chrome_trace(self, path: str | os.PathLike[str]) -> Path:
        """Write a file that Perfetto (https://ui.perfetto.dev) and chrome://tracing open.

        Args:
            path: Of the JSON file.

        Returns:
            The path written.
        """
        events: list[dict[str, object]] = []
        for rank, lane in self.lanes.items():
            name = {"name": f"rank {rank}"}
            events.append({"name": "thread_name", "ph": "M", "pid": 0, "tid": rank, "args": name})
            events += [
                {
                    "name": f"{span.kind} {span.operation}".strip(),
                    "cat": span.kind,
                    "ph": "X",
                    "ts": 1e6 * span.start_s,
                    "dur": 1e6 * (span.stop_s - span.start_s),
                    "pid": 0,
                    "tid": rank,
                    "args": {"bytes": span.nbytes} if span.operation else {},
                }
                for span in lane
            ]
        with atomic_write(path, "w", encoding="utf-8") as file:
            json.dump({"traceEvents": events, "displayTimeUnit": "ms"}, file)
        return Path(path)


class StepTrace:
    """Records what this rank waits for: ``with StepTrace() as step: ...``, then ``step.gather()``.

    Whatever is no wait for other ranks counts as computing. Overlap is seen as it is: an all-reduce
    that travels while backward computes takes time only where backward has to wait for it.

    Raises:
        RuntimeError: The session isn't on our MPI backend, so that nobody tells of waits: start
            the ranks with mpiexec, or from a notebook.
    """

    def __init__(self) -> None:
        ranks = session.current()
        if ranks is None or not trace.is_known_of(ranks.backend):
            raise RuntimeError(
                "waits are known on the backend 'mpi4py' only: start ranks by mpiexec, and call "
                "session.start()"
            )
        self._waits: list[Waited] = []
        self._begun = self._ended = time.perf_counter()

    def __enter__(self) -> StepTrace:
        trace.listeners.append(self._waits.append)
        self._begun = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = time.perf_counter()
        trace.listeners.remove(self._waits.append)

    def gather(self) -> Timeline:
        """Bring all ranks' records together.

        **Distributed:** collective; equal on all ranks.
        """
        offsets = clock_offsets()
        records: list[Record] = [None] * len(offsets)  # type: ignore[list-item]
        dist.all_gather_object(records, Record(self._begun, self._ended, tuple(self._waits)))
        return Timeline(by_one_clock(dict(enumerate(records)), offsets))


def clock_offsets() -> list[float]:
    """By how many seconds each rank's ``time.perf_counter`` is ahead of rank 0's.

    Rank 0 asks each other rank for the time, some times over. The quickest answer counts: it was
    read in the middle of question and answer, give or take half of the time between these.

    **Distributed:** collective; equal on all ranks.
    """
    rank, n = dist.get_rank(), dist.get_world_size()
    offsets = torch.zeros(n, dtype=torch.float64)
    message = torch.zeros(1, dtype=torch.float64)
    for other in range(1, n) if rank == 0 else ():
        quickest_s = float("inf")
        for _ in range(PING_PONGS):
            asked = time.perf_counter()
            dist.send(message, other)
            dist.recv(message, other)
            answered = time.perf_counter()
            if answered - asked < quickest_s:
                quickest_s = answered - asked
                offsets[other] = message[0] - (asked + answered) / 2
    for _ in range(PING_PONGS if rank else 0):
        dist.recv(message, 0)
        message[0] = time.perf_counter()
        dist.send(message, 0)
    dist.broadcast(offsets, 0)
    return [float(offset) for offset in offsets]


def by_one_clock(records: Mapping[int, Record], offsets: Sequence[float]) -> dict[int, list[Timed]]:
    """Tell waiting from communicating, on rank 0's clock.

    A rank waits until the last one has begun the same operation; from then on data can move.

    Args:
        records: By rank.
        offsets: What ``clock_offsets`` returned.

    Returns:
        By rank, spans without gaps; time starts with the first rank.
    """
    zero = min(record.begun_s - offsets[rank] for rank, record in records.items())
    all_begun: dict[tuple[tuple[int, ...], int | None], float] = {}
    for rank, record in records.items():
        for wait in record.waits:
            key, begun = (wait.ranks, wait.sequence), wait.begun_s - offsets[rank] - zero
            if wait.sequence is not None:
                all_begun[key] = max(all_begun.get(key, begun), begun)
    lanes: dict[int, list[Timed]] = {}
    for rank, record in sorted(records.items()):
        shift = offsets[rank] + zero
        now, end = record.begun_s - shift, record.ended_s - shift
        lane: list[Timed] = []
        for wait in record.waits:
            start, stop = max(wait.waiting_s - shift, now), wait.ended_s - shift
            if stop <= start:
                continue  # it came while this rank computed, or waited for another one
            moving = min(max(all_begun.get((wait.ranks, wait.sequence), start), start), stop)
            lane += [
                Timed(COMPUTE, now, start),
                Timed(WAIT, start, moving, wait.operation, wait.nbytes),
                Timed(COMMUNICATE, moving, stop, wait.operation, wait.nbytes),
            ]
            now = stop
        lane.append(Timed(COMPUTE, now, end))
        lanes[rank] = [span for span in lane if span.stop_s > span.start_s]
    return lanes
