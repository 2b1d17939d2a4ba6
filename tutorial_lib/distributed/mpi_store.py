"""torch's key-value store over MPI, for what ranks exchange before they have a group; no port.

The default group and its subgroups need nothing from it, since MPI connects them. Others do: a
gloo or NCCL group beside it exchanges addresses here, and so may user code.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from mpi4py import MPI

from tutorial_lib.distributed import mpi_communicator, mpi_progress
from tutorial_lib.distributed.mpi_wait import wait_until

REQUEST_TAG, ANSWER_TAG = 1, 2
IDLE_S = 0.02  # how long rank 0 may take to notice the first of several requests
BUSY_S = 0.0002  # between the requests of a busy time
BUSY_FOR_S = 0.1

Value = bytes | str

# torch keeps only the C++ half of a store, which cannot answer without this one.
_open: list[Store] = []


class Table:
    """The store's content, on rank 0."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def do(self, name: str, *arguments: Any) -> Any:
        """Do one operation, whole, whoever asks for it."""
        with self._lock:
            return getattr(self, name)(*arguments)

    def set(self, key: str, value: bytes) -> None:
        """Store a value."""
        self._values[key] = value

    def find(self, keys: Sequence[str]) -> list[bytes] | None:
        """The values of the keys, or None when one is missing."""
        if all(key in self._values for key in keys):
            return [self._values[key] for key in keys]
        return None

    def add(self, key: str, amount: int) -> int:
        """Add to a number and return the sum."""
        total = int(self._values.get(key, b"0")) + amount
        self._values[key] = str(total).encode()
        return total

    def append(self, key: str, value: bytes) -> None:
        """Add to the end of a value."""
        self._values[key] = self._values.get(key, b"") + value

    def compare_set(self, key: str, expected: bytes, desired: bytes) -> bytes:
        """Store a value if the present one is as expected (empty: none); return what is there."""
        present = self._values.get(key)
        if present == expected or (present is None and not expected):
            self._values[key] = desired
            return desired
        return present if present is not None else expected

    def delete(self, key: str) -> bool:
        """Remove a key; whether it was there."""
        return self._values.pop(key, None) is not None

    def keys(self) -> list[str]:
        """All keys."""
        return list(self._values)


class Store(dist.Store):
    """A store that all ranks share: rank 0 holds it, and a thread there answers the others.

    Args:
        timeout_s: How long to wait for the other ranks, and for keys, in seconds.

    Raises:
        RuntimeError: MPI allows no calls from threads: use a ``TCPStore``.

    **Distributed:** making one is collective over all ranks; its methods are not. It lives until
    it is closed, or the process ends.
    """

    def __init__(self, timeout_s: float = 300.0) -> None:
        super().__init__()
        if not mpi_progress.has_threads():
            raise RuntimeError("this MPI allows no calls from threads: use torch's TCPStore")
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._number = 0
        self._closing = threading.Event()
        self._comm = mpi_communicator.duplicate_world(timeout_s)
        self._table = Table() if self._comm.rank == 0 else None
        self._thread: threading.Thread | None = None
        if self._table is not None and self._comm.size > 1:
            self._thread = threading.Thread(target=self._serve, name="mpi-store", daemon=True)
            self._thread.start()
        _open.append(self)

    def close(self) -> None:
        """End the thread and free the communicator. The other ranks' requests then time out."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()
        if self._comm != MPI.COMM_NULL:
            self._comm.Free()
        if self in _open:
            _open.remove(self)

    def _serve(self) -> None:
        assert self._table is not None  # only rank 0 serves
        status = MPI.Status()
        busy_until = 0.0
        sent: list[MPI.Request] = []  # a large answer's memory must live until it is delivered
        while not self._closing.wait(BUSY_S if time.monotonic() < busy_until else IDLE_S):
            while (message := self._comm.improbe(MPI.ANY_SOURCE, REQUEST_TAG, status)) is not None:
                number, name, arguments = message.recv()
                try:
                    answer = self._table.do(name, *arguments)
                except Exception as error:  # the asker's, not this thread's
                    answer = error
                sent = [request for request in sent if not request.Test()]
                sent.append(self._comm.isend((number, answer), status.Get_source(), ANSWER_TAG))
                busy_until = time.monotonic() + BUSY_FOR_S

    def _ask(self, name: str, *arguments: Any) -> Any:
        if self._table is not None:
            return self._table.do(name, *arguments)
        with self._lock:  # one request at a time
            self._number += 1
            request = self._comm.isend((self._number, name, arguments), 0, REQUEST_TAG)
            answers: list[Any] = []

            def is_answered() -> bool:
                while (message := self._comm.improbe(0, ANSWER_TAG)) is not None:
                    number, answer = message.recv()
                    if number == self._number:  # else of a request that was interrupted
                        answers.append(answer)
                return bool(answers) and bool(request.Test())

            if not wait_until(is_answered, self._timeout_s):
                raise dist.DistStoreError(
                    f"rank {self._comm.rank} waited {self._timeout_s:g} s for rank 0, which holds "
                    "the store: it has closed it, or cannot run its threads"
                )
            if isinstance(answers[0], Exception):
                raise answers[0]
            return answers[0]

    def _poll(self, name: str, keys: Sequence[str], timeout_s: float) -> Any:
        """Ask until the answer is something."""
        answers: list[Any] = []

        def has_answer() -> bool:
            answers.append(self._ask(name, keys))
            if answers[-1] is None and self._table is None:
                time.sleep(BUSY_S)
            return answers[-1] is not None

        if not wait_until(has_answer, timeout_s):
            raise dist.DistStoreError(
                f"rank {self._comm.rank} waited {timeout_s:g} s for the store's keys "
                f"{list(keys)}: no rank has set them all"
            )
        return answers[-1]

    def set(self, key: str, value: Value) -> None:
        """Store a value."""
        self._ask("set", key, _encoded(value))

    def get(self, key: str) -> bytes:
        """The value of a key, waited for."""
        return self.multi_get([key])[0]

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """The values of some keys, waited for."""
        values: list[bytes] = self._poll("find", keys, self._timeout_s)
        return values

    def multi_set(self, keys: Sequence[str], values: Sequence[Value]) -> None:
        """Store several values."""
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def add(self, key: str, amount: int) -> int:
        """Add to a number, whole, and return the sum."""
        total: int = self._ask("add", key, amount)
        return total

    def append(self, key: str, value: Value) -> None:
        """Add to the end of a value."""
        self._ask("append", key, _encoded(value))

    def compare_set(self, key: str, expected_value: Value, desired_value: Value) -> bytes:
        """Store a value if the present one is as expected; return what is there then."""
        expected, desired = _encoded(expected_value), _encoded(desired_value)
        present: bytes = self._ask("compare_set", key, expected, desired)
        return present

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all the keys are there now."""
        return self._ask("find", keys) is not None

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Wait until all the keys are there."""
        limit_s = self._timeout_s if timeout is None else timeout.total_seconds()
        self._poll("find", keys, limit_s)

    def delete_key(self, key: str) -> bool:
        """Remove a key; whether it was there."""
        return bool(self._ask("delete", key))

    def list_keys(self) -> list[str]:
        """All keys."""
        keys: list[str] = self._ask("keys")
        return keys

    def num_keys(self) -> int:
        """How many keys there are."""
        return len(self.list_keys())

    def has_extended_api(self) -> bool:
        """That ``append``, ``multi_get`` and ``multi_set`` exist."""
        return True

    def set_timeout(self, timeout: timedelta) -> None:
        """Set how long to wait for keys."""
        self._timeout_s = timeout.total_seconds()

    @property
    def timeout(self) -> timedelta:
        """How long to wait for keys."""
        return timedelta(seconds=self._timeout_s)

    # The names by which C++ calls the methods.
    deleteKey: Callable[[Any, str], bool] = delete_key  # noqa: N815
    getNumKeys: Callable[[Any], int] = num_keys  # noqa: N815


@atexit.register
def close_all() -> None:
    """Close all stores of this process: MPI must not be called once it is finalised."""
    while _open:
        _open[-1].close()


def _encoded(value: Value) -> bytes:
    return value.encode() if isinstance(value, str) else value
