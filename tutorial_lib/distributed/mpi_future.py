"""torch's futures, waited for without freezing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from tutorial_lib.distributed.mpi_work import Work


class PolledFuture(torch.futures.Future[Any]):
    """A future whose ``wait`` in Python polls; torch's own cannot be interrupted.

    Args:
        work: Whose tensors it will hold.
    """

    def __init__(self, work: Work) -> None:
        super().__init__()
        self.work = work

    def settle(self) -> None:
        """Take the work's result, or its failure."""
        if (failure := self.work.exception()) is not None:
            self.set_exception(failure)
            return
        try:
            self.set_result(self.work.result())
        except RuntimeError as error:
            if "KeyboardInterrupt" in str(error):  # it struck within torch's C++
                raise KeyboardInterrupt from error
            raise

    def wait(self) -> Any:
        """Wait for the result and return it."""
        self.work.wait()
        return super().wait()

    def then(self, callback: Callable[[torch.futures.Future[Any]], Any]) -> PolledFuture:
        """A future of what ``callback`` makes of this one."""
        child = PolledFuture(self.work)

        def pass_on(parent: torch.futures.Future[Any]) -> None:
            try:
                child.set_result(callback(parent))
            except Exception as error:
                child.set_exception(error)
            except BaseException as error:  # C++ calls this, and swallows what it raises
                self.work.interrupt = error
                raise

        self.add_done_callback(pass_on)
        return child
