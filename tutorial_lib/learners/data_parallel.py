"""Learners whose gradient is the sum over all ranks, in full or in a few bits."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from tutorial_lib.distributed.data_parallel import sum_gradients
from tutorial_lib.learners.aggregation import QuantizedAggregation
from tutorial_lib.learners.distributed_learner import DistributedLearner, Reduced
from tutorial_lib.learners.learner import Learner
from tutorial_lib.learners.quantization import PLAIN_BITS, check_bits

__all__ = ["DataParallelLearner", "DistributedLearner", "data_parallel_distributed_learner"]


class DataParallelLearner(DistributedLearner):
    """A local learner that acts on gradients summed over the ranks.

    N ranks with b samples each update as one rank with N * b samples does. With less than 32 bits
    the gradients are rounded on their way, and the remainders kept for the next minibatch.

    ``bytes_sent`` counts what this rank sent for gradients; an unquantised sum is counted as the
    2 * (ranks - 1) / ranks of its size that a ring or a pair of halvings sends.

    Args:
        learner: The local rule.
        distributed_after: See ``DistributedLearner``.
        num_quantization_bits: 1, 2, 4, 8 or 16; 32 and more: plain float32.

    **Source:** CNTK's ``DataParallelDistributedLearner``, and the quantised one.
    """

    def __init__(
        self, learner: Learner, distributed_after: int = 0, num_quantization_bits: int = PLAIN_BITS
    ) -> None:
        check_bits(num_quantization_bits)
        super().__init__(learner, distributed_after)
        self.num_quantization_bits = num_quantization_bits
        # Where each parameter's residuals are now.
        self._holders: dict[Tensor, QuantizedAggregation] = {}

    @property
    def is_synchronizing(self) -> bool:
        """Whether the next minibatch is all ranks': its gradients, loss and count are summed."""
        return self.is_distributed and self.total_number_of_samples_seen >= self.distributed_after

    @property
    def is_quantized(self) -> bool:
        """Whether gradients travel in fewer than 32 bits."""
        return self.num_quantization_bits < PLAIN_BITS

    def comm_hook(self, state: object, bucket: dist.GradBucket) -> Reduced:
        """Sum a bucket of gradients over the ranks; for a model that this learner learns alone.

        **Distributed:** collective when ``is_synchronizing``.
        """
        if self.is_synchronizing and not self.is_quantized:
            self._count_plain(bucket.buffer())
            return sum_gradients(state, bucket)
        return super().comm_hook(state, bucket)

    def reduce(self, parameters: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
        """Replace gradients by their sums over the ranks.

        **Distributed:** collective when ``is_synchronizing``.
        """
        if not self.is_synchronizing:
            return
        if self.is_quantized:
            self._reduce_quantized(parameters, gradients)
            return
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        self._count_plain(flat)
        self._ranks.all_reduce(flat)
        sizes = [gradient.numel() for gradient in gradients]
        for gradient, total in zip(gradients, flat.split(sizes), strict=True):
            gradient.copy_(total.view(gradient.shape))

    def update(self, num_samples: int, is_sweep_end: bool = False) -> bool:
        """Apply the local rule to the summed gradients.

        Args:
            num_samples: Of all ranks' minibatch when ``is_synchronizing``, else of this rank's.
            is_sweep_end: Whether the minibatch ended a sweep through the data.

        Returns:
            Whether anything changed; False for an empty minibatch.
        """
        self.total_number_of_samples_seen += num_samples
        return num_samples > 0 and self.learner.update(num_samples, is_sweep_end)

    def wait_for_ranks(self) -> None:
        """Nothing: the ranks meet in every minibatch."""

    def own_state(self) -> dict[str, Any]:
        """Return nothing: the ranks are equal."""
        return {}

    def load_own_state(self, state: dict[str, Any]) -> None:
        """Nothing: see ``own_state``."""

    def state_dict(self) -> dict[str, Any]:
        """Return the local rule's state and all ranks' quantisation residuals.

        **Distributed:** collective when quantised; equal on all ranks.
        """
        residuals = None
        if self.is_quantized and self.is_distributed:
            residuals = self._aggregation(self.parameters).state_dict()
        return {
            "learner": self.learner.state_dict(),
            "total_number_of_samples_seen": self.total_number_of_samples_seen,
            "residuals": residuals,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from ``state_dict``'s, also with another number of ranks or of bits.

        One rank alone, or 32 bits, leave nothing out, and forget what others left out.

        Raises:
            ValueError: The state is of other parameters: build the learner as it was.
        """
        self.learner.load_state_dict(state["learner"])
        self.total_number_of_samples_seen = state["total_number_of_samples_seen"]
        self._holders.clear()
        if state["residuals"] is not None and self.is_quantized and self.is_distributed:
            self._aggregation(self.parameters).load_state_dict(state["residuals"])

    def _reduce_quantized(self, parameters: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
        # DistributedDataParallel may reorder its buckets; residuals must not care.
        order = {id(parameter): place for place, parameter in enumerate(self.parameters)}
        members = sorted(
            zip(parameters, gradients, strict=True), key=lambda member: order[id(member[0])]
        )
        aggregation = self._aggregation([parameter for parameter, _ in members])
        before = aggregation.bytes_sent
        aggregation.aggregate([gradient for _, gradient in members])
        self.bytes_sent += aggregation.bytes_sent - before

    def _aggregation(self, parameters: list[Tensor]) -> QuantizedAggregation:
        """Return the aggregation of just these parameters, with the residuals they have now."""
        holders = {self._holders[p] for p in parameters if p in self._holders}
        for holder in holders:
            if holder.is_of(parameters):
                return holder
        aggregation = QuantizedAggregation(parameters, self.num_quantization_bits, self._ranks)
        for holder in holders:
            aggregation.adopt(holder)
        self._holders.update(dict.fromkeys(parameters, aggregation))
        return aggregation

    def _count_plain(self, sent: Tensor) -> None:
        size = self._ranks.world_size
        self.bytes_sent += 2 * (size - 1) * sent.numel() * sent.element_size() // size


def data_parallel_distributed_learner(
    learner: Learner,
    distributed_after: int = 0,
    num_quantization_bits: int = PLAIN_BITS,
    use_async_buffered_parameter_update: bool = False,
) -> DataParallelLearner:
    """Make a learner act on gradients summed over the ranks.

    Args:
        learner: The local rule.
        distributed_after: Samples after which the ranks begin to work together.
        num_quantization_bits: 1, 2, 4, 8 or 16 bits an element; 32 and more: plain float32.
        use_async_buffered_parameter_update: Must be False, as in CNTK.

    Returns:
        The distributed learner; in a session of one rank it acts like the local one.

    Raises:
        RuntimeError: Asynchronous updates, or a number of bits that doesn't divide a word: see
            above.
        ValueError: Less than one bit, or a negative count of samples: see above.

    **Source:** CNTK's ``data_parallel_distributed_learner``.
    """
    if use_async_buffered_parameter_update:
        raise RuntimeError(
            "Asynchronous parameter update is not yet supported for the "
            "DataParallelDistributedLearner."
        )
    return DataParallelLearner(learner, distributed_after, num_quantization_bits)
