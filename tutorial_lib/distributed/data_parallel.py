"""One model, many ranks: gradients are summed over the ranks while backward still runs."""

# No postponed annotations here: torch wants the hook's to be the types themselves.
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tutorial_lib.distributed import session


def data_parallel(model: nn.Module, hook: Any = None, state: object = None) -> nn.Module:
    """Wrap a model so that backward leaves on every rank the **sum** of all ranks' gradients.

    torch's ``DistributedDataParallel`` leaves their mean. With the sum, and a loss that is
    summed over samples too, N ranks with b samples each compute exactly what one rank computes
    with N * b, also when the ranks hold different numbers of samples.

    Args:
        model: A plain module. Rank 0's weights are copied to all ranks.
        hook: Communication hook for ``DistributedDataParallel.register_comm_hook``; None sums
            by one all-reduce per bucket.
        state: What the hook gets as its first argument.

    Returns:
        The wrapper, or the model itself in a session of one rank. Call the wrapper once per
        backward; call ``model`` itself for what only one rank does (sampling).

    **Distributed:** collective, and so are the wrapper's forward and backward: every rank must
    reach them.

    **Source:** torch.nn.parallel.DistributedDataParallel (Li et al., arXiv 2006.15704).
    """
    ranks = session.current()
    if ranks is None or ranks.world_size == 1:
        return model
    wrapper = DistributedDataParallel(
        model,
        forward_sync_buffers=False,  # BatchNorm's running statistics stay each rank's own
        gradient_as_bucket_view=True,  # the sum lands where the learner reads it
    )
    wrapper.register_comm_hook(state, hook or sum_gradients)
    return wrapper


def sum_gradients(state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Communication hook: sum a bucket of gradients over the ranks.

    Args:
        state: Not used.
        bucket: Gradients that are ready, as one flat tensor.

    Returns:
        A future of the summed bucket.

    **Distributed:** collective.
    """
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    assert work is not None  # only a rank outside the group gets no work
    summed: torch.futures.Future[torch.Tensor] = work.get_future().then(lambda f: f.value()[0])
    return summed


@torch.no_grad()
def start_equal(model: nn.Module) -> None:
    """Copy rank 0's weights and buffers to all ranks; ``data_parallel`` does it by itself.

    Args:
        model: A plain module.

    **Distributed:** collective.
    """
    for tensor in model.state_dict().values():
        dist.broadcast(tensor, 0)


def unwrap(model: nn.Module) -> nn.Module:
    """The plain module inside a data-parallel wrapper, or the module itself."""
    return model.module if isinstance(model, DistributedDataParallel) else model
