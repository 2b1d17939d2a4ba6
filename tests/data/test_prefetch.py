"""What is made ahead is what would have been made, whatever happens meanwhile."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tutorial_lib.data.cntk_reader import CntkReader
from tutorial_lib.data.datasets import Split
from tutorial_lib.data.minibatch_source import MinibatchSource
from tutorial_lib.data.noise import NoiseSource
from tutorial_lib.data.pipeline import Pipeline
from tutorial_lib.data.prefetch import PrefetchedSource, Prefetcher

SPLIT = Split(torch.arange(23 * 4, dtype=torch.uint8).view(23, 2, 2), torch.arange(23))

SOURCES: dict[str, Callable[[], Any]] = {
    "minibatches": lambda: MinibatchSource(SPLIT, seed=2),
    "two sweeps": lambda: MinibatchSource(SPLIT, max_sweeps=2),
    "in order": lambda: MinibatchSource(SPLIT, randomize=False),
    "noise": lambda: NoiseSource(3, seed=2),
    "CNTK's reader": lambda: CntkReader(SPLIT),
    "CNTK's reader, in order": lambda: CntkReader(SPLIT, randomize=False),
}


def draw(source: Any, *arguments: int) -> list[Any]:
    """What one call gives, as values that can be compared."""
    kind = source.source if isinstance(source, PrefetchedSource) else source
    if isinstance(kind, NoiseSource):
        return list(source.next(*arguments).flatten().tolist())
    part = source.next_minibatch(*arguments)
    facts = [part.global_size, part.sweep, part.is_sweep_end]
    return [part.features.tolist(), part.labels.tolist(), part.indices.tolist(), *facts]


def threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("prefetch")]


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("name", SOURCES)
def test_minibatches_and_states_are_those_of_the_source(name: str, count: int) -> None:
    plain, ahead = SOURCES[name](), PrefetchedSource(SOURCES[name](), count)
    for arguments in [(5, 2, 1)] * 7 + [(4, 2, 1)] + [(6, 2, 1)] * 4:  # a changed size, too
        assert ahead.state_dict() == plain.state_dict()
        assert draw(ahead, *arguments) == draw(plain, *arguments)
    ahead.close()
    assert ahead.source.state_dict() == plain.state_dict()
    assert draw(ahead.source, 5) == draw(plain, 5)


@pytest.mark.parametrize("name", SOURCES)
def test_any_source_goes_on_from_a_state_of_any_other(name: str) -> None:
    ahead = PrefetchedSource(SOURCES[name]())
    for _ in range(3):
        draw(ahead, 5)
    state = ahead.state_dict()
    expected = [draw(ahead, 5) for _ in range(3)]
    for later in (SOURCES[name](), PrefetchedSource(SOURCES[name]()), ahead):
        draw(later, 4)
        later.load_state_dict(state)
        assert [draw(later, 5) for _ in range(3)] == expected


def test_state_of_other_data_is_refused_and_changes_nothing() -> None:
    ahead = PrefetchedSource(SOURCES["minibatches"]())
    plain = SOURCES["minibatches"]()
    assert draw(ahead, 5) == draw(plain, 5)
    with pytest.raises(ValueError, match="this source has 23"):
        ahead.load_state_dict({**plain.state_dict(), "num_samples": 24})
    assert draw(ahead, 5) == draw(plain, 5)


def test_the_next_ones_are_made_in_a_thread_and_no_more_than_asked_for() -> None:
    makers: list[int] = []
    is_made = threading.Event()

    def make() -> tuple[int, int]:
        makers.append(threading.get_ident())
        if len(makers) == 4:
            is_made.set()
        return len(makers), len(makers)

    prefetcher = Prefetcher[int, int](3, 0)
    assert prefetcher.next(make, makers.__delitem__) == 1
    assert is_made.wait(20)  # three more, without being asked
    time.sleep(0.05)
    assert len(makers) == 4
    assert threading.get_ident() not in makers
    assert prefetcher.state == 1


class Fragile(NoiseSource):
    """Fails once at a given position."""

    fails_at = 20

    def next(self, *arguments: int) -> torch.Tensor:
        rows = super().next(*arguments)
        if self.position == self.fails_at:
            self.fails_at = -1
            raise OSError("the disk is gone")
        return rows


def test_error_comes_at_its_minibatch_and_nothing_is_lost() -> None:
    ahead, plain = PrefetchedSource(Fragile(3), 3), NoiseSource(3)
    for _ in range(3):
        assert draw(ahead, 5) == draw(plain, 5)
    with pytest.raises(OSError, match="the disk is gone"):
        draw(ahead, 5)
    assert ahead.state_dict() == plain.state_dict()
    assert [draw(ahead, 5) for _ in range(4)] == [draw(plain, 5) for _ in range(4)]


def test_pipeline_tries_again_what_failed() -> None:
    def fail_once(x: torch.Tensor, random: torch.Tensor) -> torch.Tensor:
        calls.append(len(x))
        if len(calls) == 3:
            raise KeyError("once")
        return x

    for count in (0, 2):
        calls: list[int] = []
        pipeline, plain = Pipeline(SPLIT, 4, batch_map=fail_once, prefetch_size=count), []
        for _ in range(5):
            try:
                plain.append(pipeline.next().position)
            except KeyError:
                plain.append(-1)
        assert plain == [4, 8, -1, 12, 16]
        pipeline.close()


class Slow(NoiseSource):
    def next(self, *arguments: int) -> torch.Tensor:
        time.sleep(0.02)
        return super().next(*arguments)


def test_interrupts_lose_nothing() -> None:
    ahead, plain = PrefetchedSource(Slow(3), 2), NoiseSource(3)
    drawn = interrupts = 0
    deadline = time.monotonic() + 60
    while (drawn < 10 or interrupts < 5) and time.monotonic() < deadline:
        rows = None
        plain.load_state_dict(ahead.state_dict())
        timer = threading.Timer(0.015, os.kill, (os.getpid(), signal.SIGINT))
        try:
            timer.start()
            rows = draw(ahead, 5)
            timer.join()
            time.sleep(0.001)
        except KeyboardInterrupt:
            interrupts += 1
            timer.join()
        if ahead.state_dict() == plain.state_dict():
            rows = draw(ahead, 5)
        if rows is not None:  # else the interrupt came between handing out and taking
            assert rows == draw(plain, 5), "the one after what was handed out last"
            drawn += 1
    assert interrupts >= 5
    ahead.close()


def test_making_goes_on_from_the_state_after_two_interrupts_of_one_item() -> None:
    position, interrupts, is_asked = 0, 2, threading.Semaphore(0)

    def make() -> tuple[int, int]:
        nonlocal position, interrupts
        while interrupts:
            interrupts -= 1
            is_asked.acquire()
            time.sleep(0.05)  # it waits for this item by now
            os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.2)
        position += 1
        return position, position

    def restore(state: int) -> None:
        nonlocal position
        position = state

    def ask() -> int:
        is_asked.release()
        return prefetcher.next(make, restore)

    prefetcher = Prefetcher[int, int](2, 0)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            ask()
    assert [ask() for _ in range(3)] == [1, 2, 3]
    prefetcher.rewind(restore)


@pytest.mark.parametrize("end", ["close", "collect"])
def test_thread_ends(end: str) -> None:
    ahead = PrefetchedSource(SOURCES["minibatches"]())
    pipeline = Pipeline(SPLIT, 4, prefetch_size=2)
    draw(ahead, 5)
    pipeline.next()
    assert len(threads()) >= 2
    if end == "close":
        ahead.close()
        pipeline.close()
    else:
        del ahead, pipeline
        deadline = time.monotonic() + 20
        while threads() and time.monotonic() < deadline:
            gc.collect()
            time.sleep(0.01)
    assert not threads()


def test_without_any_ahead_there_is_no_wrapper() -> None:
    with pytest.raises(ValueError, match="count is 1 or more"):
        PrefetchedSource(NoiseSource(), 0)
