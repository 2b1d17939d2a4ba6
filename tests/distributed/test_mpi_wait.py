import time
from types import SimpleNamespace

import pytest

from tutorial_lib.distributed import mpi_wait
from tutorial_lib.distributed.mpi_wait import SPIN_S, Pace, wait_until


def test_waiting_ends_when_it_is_done():
    turns = iter([False] * 100 + [True])
    assert wait_until(lambda: next(turns), 10)


def test_waiting_has_a_limit():
    start_s = time.perf_counter()
    assert not wait_until(lambda: False, 0.1)
    assert 0.1 <= time.perf_counter() - start_s < 1


def test_a_check_ends_the_wait():
    def check():
        raise InterruptedError

    with pytest.raises(InterruptedError):
        wait_until(lambda: False, 10, check)


def test_a_long_wait_leaves_the_core_to_others():
    cpu_s = time.thread_time()
    wait_until(lambda: False, 1)
    assert time.thread_time() - cpu_s < 0.3


def test_a_wait_in_which_data_moves_does_not_sleep(monkeypatch):
    pace = Pace()
    time.sleep(2 * SPIN_S)  # as long as a poll that moves much takes
    clock = SimpleNamespace(
        perf_counter=time.perf_counter, sleep=lambda _: pytest.fail("slept while data moved")
    )
    monkeypatch.setattr(mpi_wait, "time", clock)
    pace.pause()
