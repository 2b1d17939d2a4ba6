"""Who gets which part of a minibatch."""

from __future__ import annotations


def partition_bounds(size: int, num_data_partitions: int, partition_index: int) -> tuple[int, int]:
    """Return the half-open range of a global minibatch that one rank works on.

    The ranges of all ranks are contiguous, in rank order, and tile ``range(size)``: nothing is
    left out and nothing is done twice. Local counts differ by at most one; the first
    ``size % num_data_partitions`` ranks have the extra sample. With fewer samples than ranks the
    last ranks get an empty range, and take the step all the same.

    Args:
        size: samples in the global minibatch, 0 or more.
        num_data_partitions: number of ranks that share it, 1 or more.
        partition_index: the rank, ``0 <= partition_index < num_data_partitions``.

    Returns:
        ``(start, stop)`` with ``stop - start == size // W + (rank < size % W)``.

    Raises:
        ValueError: an argument is out of its range; pass the world size and this rank.

    **Distributed:** not collective; every rank computes its own part from the same arguments.

    **Source:** CNTK's ``next_minibatch(size, num_data_partitions, partition_index)`` counts.
    """
    if size < 0:
        raise ValueError(f"a minibatch has 0 samples or more, got size={size}")
    if num_data_partitions < 1:
        raise ValueError(
            f"num_data_partitions is the number of ranks, 1 or more, got {num_data_partitions}"
        )
    if not 0 <= partition_index < num_data_partitions:
        raise ValueError(
            f"partition_index is a rank, 0 to {num_data_partitions - 1}, got {partition_index}"
        )
    count, extra = divmod(size, num_data_partitions)
    start = partition_index * count + min(partition_index, extra)
    return start, start + count + (partition_index < extra)
