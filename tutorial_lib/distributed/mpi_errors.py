"""What can go wrong between ranks, each with what to do about it."""

import torch.distributed as dist


class CollectiveError(dist.DistBackendError):
    """An operation between ranks failed: MPI's own words, and which operation it was."""


class CollectiveTimeoutError(CollectiveError):
    """The other ranks did not come in time: see where they are; the group needs ``renew()``."""


class CollectiveCancelledError(CollectiveError):
    """Somebody called the wait off (``cancel``): the group needs ``renew()``."""


class CollectiveMismatchError(CollectiveError):
    """The ranks made different calls: make the same ones, in the same order, on all of them."""
