"""Rank 1 comes late to an all-reduce: on the timeline rank 0 must wait for it."""

import time

import torch
import torch.distributed as dist

from tutorial_lib.distributed import session, trace
from tutorial_lib.distributed.timeline import COMMUNICATE, COMPUTE, WAIT, StepTrace, clock_offsets

with session.script() as me:
    me.barrier()
    with StepTrace() as step:
        if me.rank == 1:
            time.sleep(3)
        dist.all_reduce(torch.ones(1000))
    timeline = step.gather()
    assert not trace.listeners
    assert [span.kind for span in timeline.lanes[0]][:2] == [COMPUTE, WAIT]
    # Rank 0's may be shorter than the difference that is left between the clocks.
    assert COMMUNICATE in {span.kind for span in timeline.lanes[1]}
    waits = {
        rank: sum(span.stop_s - span.start_s for span in lane if span.kind == WAIT)
        for rank, lane in timeline.lanes.items()
    }
    offsets = clock_offsets()
    if me.is_main:
        assert waits[0] > 0.3, waits
        assert waits[1] < waits[0] / 2, waits
        print("rank 0 waited")
        assert offsets[0] == 0
        assert abs(offsets[1]) < 0.2, offsets  # one host has one clock
        print("the clocks agree")
