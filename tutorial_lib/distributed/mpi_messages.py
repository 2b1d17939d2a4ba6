"""Messages from one rank to another, and the barrier that can tell who did not come."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from zlib import crc32

import torch
from mpi4py import MPI

from tutorial_lib.distributed import mpi_types as types
from tutorial_lib.distributed.mpi_errors import CollectiveTimeoutError
from tutorial_lib.distributed.mpi_operation import Operations, Part, only
from tutorial_lib.distributed.mpi_work import NO_TIMEOUT, Work

Tensors = Sequence[torch.Tensor]

# The highest tags are the backend's own; a barrier's report and its answer need one each.
TAG_LIMIT = int(MPI.COMM_WORLD.Get_attr(MPI.TAG_UB) or 32767)
REPORT_TAG, ANSWER_TAG = TAG_LIMIT, TAG_LIMIT - 1


def meeting_tag(ranks: Sequence[int]) -> int:
    """Tag on which the members of a group that is being made meet."""
    return TAG_LIMIT - 2 - crc32(str(list(ranks)).encode()) % 4096


class Messages(Operations):
    """A group's point-to-point operations."""

    ranks: tuple[int, ...]
    timeout_s: float

    def send(self, tensors: Tensors, destination: int, tag: int) -> Work:
        """Send a tensor; isend is the same, waited for later."""
        values = types.staged(only(tensors))
        part = Part(
            lambda comm: comm.Isend(types.as_bytes(values), destination, tag), None, (values,)
        )
        return self.begin("send", tensors, [part], None, destination)

    def recv(self, tensors: Tensors, source: int, tag: int) -> Work:
        """Receive into a tensor; irecv is the same, waited for later."""
        tensor = only(tensors)
        values = types.staged(tensor, filled=False)
        part = Part(
            lambda comm: comm.Irecv(types.as_bytes(values), source, tag),
            lambda: types.unstage(values, tensor),
        )
        return self.begin("recv", tensors, [part], None, source)

    def recv_anysource(self, tensors: Tensors, tag: int) -> Work:
        """Receive from whoever sends first; the work's ``source_rank()`` tells who."""
        return self.recv(tensors, MPI.ANY_SOURCE, tag)

    recvAnysource = recv_anysource  # noqa: N815 - torch's name for it in C++

    def monitored_barrier(
        self, timeout: timedelta = NO_TIMEOUT, wait_all_ranks: bool = False
    ) -> None:
        """A barrier that names who did not come.

        ``torch.distributed.monitored_barrier`` insists on gloo; call this on the group.

        Args:
            timeout: How long rank 0 waits for the others; zero means the group's time-out.
            wait_all_ranks: Taken for torch's sake: all the missing are named in any case.

        Raises:
            CollectiveTimeoutError: Somebody did not come: on rank 0 with their ranks.
        """
        limit = timeout or timedelta(seconds=self.timeout_s)
        empty = torch.empty(0)
        if self.rank() != 0:
            self.send([empty], 0, REPORT_TAG).wait(limit)
            self.recv([empty], 0, ANSWER_TAG).wait(limit)
            return
        others = range(1, self.size())
        reports = [self.recv([empty], other, REPORT_TAG) for other in others]
        missing: list[int] = []
        for other, report in zip(others, reports, strict=True):
            try:
                report.wait(limit if not missing else timedelta(milliseconds=1))
            except CollectiveTimeoutError:
                missing.append(self.ranks[other])
        if missing:
            raise CollectiveTimeoutError(
                f"rank {self.ranks[0]} waited {limit.total_seconds():g} s at a barrier: ranks "
                f"{missing} did not come. Look where they are"
            )
        for other in others:
            self.send([empty], other, ANSWER_TAG).wait(limit)
