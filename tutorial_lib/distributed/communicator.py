"""The ranks under the names that CNTK's scripts call them by."""

from __future__ import annotations

import torch.distributed as dist

from tutorial_lib.distributed import session


class Communicator:
    """The ranks that train together; one rank alone when no group is open.

    **Source:** CNTK's ``Communicator``.
    """

    @staticmethod
    def rank() -> int:
        """Return this rank."""
        return dist.get_rank() if dist.is_initialized() else 0

    @staticmethod
    def num_workers() -> int:
        """Return the world size."""
        return dist.get_world_size() if dist.is_initialized() else 1

    @classmethod
    def is_main(cls) -> bool:
        """Whether this is rank 0."""
        return cls.rank() == 0

    @staticmethod
    def barrier() -> None:
        """Wait until every rank has come here. **Distributed:** collective."""
        if dist.is_initialized():
            dist.barrier()

    @staticmethod
    def finalize() -> None:
        """Close the session. **Distributed:** every rank should call it at its end."""
        session.stop()
