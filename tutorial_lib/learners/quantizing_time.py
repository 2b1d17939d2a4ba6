"""What few bits cost a rank besides messages: measured on this machine, for any number of ranks."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

import torch
from torch import Tensor

from tutorial_lib.learners.aggregation import WORD_BYTES, QuantizedAggregation
from tutorial_lib.learners.quantization import PLAIN_BITS, packed_words

Shape = tuple[int, ...]


def gradient_bytes(shapes: Sequence[Shape], bits: int) -> int:
    """Bytes of all gradients of some parameters, packed in so many bits.

    Args:
        shapes: Of the parameters; dimension 0 are a matrix's rows, a vector is one column.
        bits: 1, 2, 4, 8, 16, or 32 for float32 as it is.
    """
    total = 0
    for shape in shapes:
        size = torch.Size(shape).numel()
        rows = shape[0] if shape else 1
        words = size if bits >= PLAIN_BITS else size // rows * packed_words(rows, bits)
        total += WORD_BYTES * words
    return total


def striped_shapes(shapes: Sequence[Shape], parts: int) -> list[Shape]:
    """Shapes of the largest part when parameters' columns are dealt out to so many ranks."""
    return [(shape[0], -(-torch.Size(shape[1:]).numel() // parts)) for shape in shapes]


class Elsewhere:
    """So many ranks of which only the first one is here: what the others would send is made up.

    The made-up messages are this rank's own, so that they are numbers as they would come.

    Args:
        world_size: 2 or more.
    """

    rank = 0

    def __init__(self, world_size: int) -> None:
        self.world_size = world_size
        self.seconds = 0.0  # spent here, which isn't the quantiser's

    def all_reduce(self, values: Tensor) -> None:
        """See ``Transport``; the others add nothing."""

    def all_gather(self, values: Tensor) -> Tensor:
        """See ``Transport``."""
        return values.expand(self.world_size, *values.shape)

    def all_to_all(
        self, received: Tensor, sent: Tensor, counts: list[int], sent_counts: list[int]
    ) -> None:
        """See ``Transport``: each of the others sends what this rank would send itself."""
        start_s = time.thread_time()
        if len(set(counts)) == 1:  # else these are sums, and those of the last time are as good
            received.view(self.world_size, -1).copy_(sent[: counts[0]])
        self.seconds += time.thread_time() - start_s


def quantizing_s(shapes: Sequence[Shape], bits: int, ranks: int, repeats: int = 5) -> float:
    """Measure how long a rank computes to sum gradients in few bits, all messages left out.

    It is this thread's processor time, with no helpers, so that other work on the machine doesn't
    count.

    It is rank 0's work, the most of all: packing its gradients, unpacking every rank's part of
    the columns that it owns, packing their sum, and unpacking all sums. That grows with the
    number of ranks, and needs no second rank to be measured.

    Args:
        shapes: Of the parameters.
        bits: 1, 2, 4, 8 or 16; with 32 there is nothing to do.
        ranks: 1 or more; one alone has nothing to do either.
        repeats: Of which the median counts.

    Returns:
        Seconds for one sum of all the gradients.

    **Distributed:** not collective.
    """
    if ranks == 1 or bits >= PLAIN_BITS:
        return 0.0
    stream = torch.Generator().manual_seed(1)
    gradients = [torch.randn(shape, generator=stream) for shape in shapes]
    others = Elsewhere(ranks)
    aggregation = QuantizedAggregation(gradients, bits, others)
    taken, threads = [], torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for _ in range(repeats + 1):
            given = [gradient.clone() for gradient in gradients]
            others.seconds = 0.0
            start_s = time.thread_time()
            aggregation.aggregate(given)
            taken.append(time.thread_time() - start_s - others.seconds)
    finally:
        torch.set_num_threads(threads)
    return statistics.median(taken[1:])  # the first one fetches memory
