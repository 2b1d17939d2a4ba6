"""What torch asks of any process group: names, sizes, kinds of device."""

from __future__ import annotations

from datetime import timedelta

import torch

from tutorial_lib.distributed.mpi_operation import ProcessGroup

NAME = "mpi4py"


class Identity(ProcessGroup):  # type: ignore[misc]
    """A group's answers to torch, whose own need a C++ backend object inside."""

    timeout_s: float
    sequence: int
    _name: str
    _size: int
    _description = ""

    def size(self) -> int:
        """Number of members."""
        return self._size

    def set_timeout(self, timeout: timedelta) -> None:
        """Set how long operations wait for the other ranks."""
        self.timeout_s = timeout.total_seconds()

    _set_default_timeout = set_timeout

    @property
    def group_name(self) -> str:
        """What torch calls the group."""
        return self._name

    @property
    def group_desc(self) -> str:
        """What the group is for."""
        return self._description

    def _set_group_name(self, name: str) -> None:
        self._name = name

    def _set_group_desc(self, description: str) -> None:
        self._description = description

    def getGroupName(self) -> str:  # noqa: N802 - torch's name for it in C++
        """As ``group_name``."""
        return self._name

    def getBackendName(self) -> str:  # noqa: N802
        """As ``name``."""
        return NAME

    def name(self) -> str:
        """Of the backend."""
        return NAME

    def _get_sequence_number_for_group(self) -> int:
        return self.sequence

    def _set_sequence_number_for_group(self) -> None:
        pass  # every rank starts at 0

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device("cpu")]

    def _get_backend(self, device: torch.device) -> Identity:
        return self  # for any device: tensors elsewhere are staged through the host

    supports_splitting = supports_coalescing = supports_time_estimate = False

    def supports_tensor_alloc(self, device: torch.device) -> bool:
        """No memory is faster than another here."""
        return False
