"""One model, many ranks: gradients are summed over the ranks while backward still runs."""

# No postponed annotations here: torch wants the hook's to be the types themselves.
import itertools
import weakref
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_leaves

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
    wrapper = _Wrapper(model, state, hook or sum_gradients)
    _wrappers[:] = [known for known in _wrappers if known() is not None]
    _wrappers.append(weakref.ref(wrapper))
    return wrapper


class _Wrapper(DistributedDataParallel):
    """A wrapper that can start over."""

    def __init__(self, model: nn.Module, state: object, hook: Any) -> None:
        super().__init__(
            model,
            forward_sync_buffers=False,  # BatchNorm's running statistics stay each rank's own
            gradient_as_bucket_view=True,  # the sum lands where the learner reads it
        )
        self._number = next(_numbers)
        self._hook = (state, hook)
        self.register_comm_hook(state, hook)

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """Call the model; what it returns keeps this wrapper alive until backward is over.

        Otherwise backward of a wrapper that nobody else holds would sum nothing, and not say so.
        """
        outputs = super().forward(*inputs, **named)  # type: ignore[no-untyped-call]
        for tensor in tree_leaves(outputs):
            if isinstance(tensor, torch.Tensor) and tensor.requires_grad:
                tensor.register_hook(self._stay)
        return outputs

    def _stay(self, gradient: torch.Tensor) -> None:
        """Nothing: a graph that holds this method holds the wrapper."""

    def start_over(self) -> None:
        """Copy rank 0's weights to all ranks, and forget a backward that was interrupted.

        **Distributed:** collective.
        """
        number, (state, hook), is_training = self._number, self._hook, self.training
        # What the reducer knows of a backward that never ended dies with it.
        _Wrapper.__init__(self, self.module, state, hook)
        self._number = number
        self.training = is_training  # the model itself has kept its own


_wrappers: list[weakref.ref[_Wrapper]] = []  # in the order in which all ranks have made them
_numbers = itertools.count()


def recover() -> list[str]:
    """After an error on some rank: have all wrappers that ``data_parallel`` made go on working.

    Returns:
        The names of their models' classes, in the order in which they were wrapped.

    **Distributed:** collective; afterwards all ranks have rank 0's weights and buffers.
    """
    global _numbers
    alive = {w._number: w for known in _wrappers if (w := known()) is not None}
    everywhere: list[list[int]] = [[] for _ in range(dist.get_world_size())]
    # Python may have dropped some on some ranks, or the error came while one was made.
    dist.all_gather_object(everywhere, [next(_numbers), *alive])
    common = sorted(set(alive).intersection(*(numbers for _, *numbers in everywhere)))
    _numbers = itertools.count(max(next_number for next_number, *_ in everywhere))
    for number in common:
        alive[number].start_over()
    return [type(alive[number].module).__name__ for number in common]


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
