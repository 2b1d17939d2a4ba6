from __future__ import annotations

import json

import pytest
import torch

from tutorial_lib.data.datasets import Split
from tutorial_lib.data.minibatch_source import Minibatch, MinibatchSource

NUM_SAMPLES = 103


def make_source(
    seed: int = 0, randomize: bool = True, max_sweeps: int | None = None
) -> MinibatchSource:
    features = torch.arange(NUM_SAMPLES).reshape(-1, 1).expand(-1, 3).contiguous()
    return MinibatchSource((features, torch.arange(NUM_SAMPLES) * 10), seed, randomize, max_sweeps)


def steps_of_all_ranks(
    world_size: int, size: int, num_steps: int, max_sweeps: int | None = None
) -> list[list[Minibatch]]:
    """Return the minibatches of every step, each a list by rank."""
    ranks = [make_source(max_sweeps=max_sweeps) for _ in range(world_size)]
    return [
        [source.next_minibatch(size, world_size, rank) for rank, source in enumerate(ranks)]
        for _ in range(num_steps)
    ]


def indices_of(step: list[Minibatch]) -> list[int]:
    return torch.cat([part.indices for part in step]).tolist()


@pytest.mark.parametrize("size", [1, 10, 64, 103, 250])
@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 7])
def test_stream_does_not_depend_on_world_size(world_size: int, size: int) -> None:
    num_steps = 2 * NUM_SAMPLES // size + 2
    serial = steps_of_all_ranks(1, size, num_steps)
    distributed = steps_of_all_ranks(world_size, size, num_steps)
    for one, all_ranks in zip(serial, distributed, strict=True):
        assert indices_of(one) == indices_of(all_ranks)
        counts = [len(part.indices) for part in all_ranks]
        assert max(counts) - min(counts) <= 1
        shared = {(part.global_size, part.sweep, part.is_sweep_end) for part in all_ranks}
        assert shared == {(size, one[0].sweep, one[0].is_sweep_end)}


@pytest.mark.parametrize("size", [1, 10, 64, 103, 250])
@pytest.mark.parametrize("world_size", [1, 3, 4])
def test_each_sweep_has_every_sample_once_in_an_order_of_its_own(
    world_size: int, size: int
) -> None:
    steps = steps_of_all_ranks(world_size, size, 3 * NUM_SAMPLES // size + 1)
    stream = [index for step in steps for index in indices_of(step)]
    sweeps = [
        stream[start : start + NUM_SAMPLES] for start in range(0, 3 * NUM_SAMPLES, NUM_SAMPLES)
    ]
    assert all(sorted(sweep) == list(range(NUM_SAMPLES)) for sweep in sweeps)
    assert sweeps[0] != sweeps[1] != sweeps[2] != sweeps[0]


def test_features_and_labels_are_those_of_the_indices() -> None:
    minibatch = make_source().next_minibatch(50, 3, 1)
    assert minibatch.indices.dtype == torch.int64
    assert torch.equal(minibatch.features, minibatch.indices.reshape(-1, 1).expand(-1, 3))
    assert torch.equal(minibatch.labels, minibatch.indices * 10)


def test_split_gives_rows_of_784_pixels() -> None:
    images = torch.randint(0, 256, (20, 28, 28), dtype=torch.uint8)
    minibatch = MinibatchSource(Split(images, torch.arange(20))).next_minibatch(8)
    assert minibatch.features.dtype == torch.uint8
    assert torch.equal(minibatch.features, images[minibatch.indices].reshape(8, 784))


def test_three_ranks_share_1024_samples_of_a_sweep_of_60000() -> None:
    ranks = [MinibatchSource((torch.zeros(60_000, 1), torch.zeros(60_000))) for _ in range(3)]
    seen = torch.zeros(60_000, dtype=torch.int64)
    for step in range(59):
        parts = [source.next_minibatch(1024, 3, rank) for rank, source in enumerate(ranks)]
        assert [len(part.indices) for part in parts] == [342, 341, 341]
        assert parts[0].is_sweep_end == (step == 58)  # 58 * 1024 + 608
        for part in parts:
            seen[part.indices] += 1
    assert seen.min() == 1
    assert seen.sum() == 59 * 1024


def test_fewer_samples_than_ranks_leave_ranks_without_samples_but_not_without_steps() -> None:
    steps = steps_of_all_ranks(5, 3, NUM_SAMPLES)
    for step in steps:
        assert [len(part.indices) for part in step] == [1, 1, 1, 0, 0]
        assert step[4].features.shape == (0, 3)
        assert {part.global_size for part in step} == {3}


@pytest.mark.parametrize("size", [1, 10, 103, 250])
def test_sweep_end_is_marked_at_each_minibatch_with_a_last_sample(size: int) -> None:
    source = make_source()
    position = 0
    for _ in range(3 * NUM_SAMPLES // size + 1):
        minibatch = source.next_minibatch(size)
        assert minibatch.sweep == position // NUM_SAMPLES
        lasts = [p for p in range(position, position + size) if p % NUM_SAMPLES == NUM_SAMPLES - 1]
        assert minibatch.is_sweep_end == bool(lasts)
        position += size


@pytest.mark.parametrize("world_size", [1, 2, 3, 7])
def test_max_sweeps_ends_with_the_remainder_at_the_same_step_on_all_ranks(world_size: int) -> None:
    ranks = [make_source(max_sweeps=2) for _ in range(world_size)]
    runs = [list(source.minibatches(50, world_size, rank)) for rank, source in enumerate(ranks)]
    assert {len(run) for run in runs} == {5}
    assert [minibatch.global_size for minibatch in runs[-1]] == [50, 50, 50, 50, 6]
    assert [minibatch.is_sweep_end for minibatch in runs[0]] == [False, False, True, False, True]
    counts = torch.zeros(NUM_SAMPLES, dtype=torch.int64)
    for run in runs:
        for minibatch in run:
            counts.index_add_(0, minibatch.indices, torch.ones_like(minibatch.indices))
    assert (counts == 2).all()
    after = ranks[0].next_minibatch(50, world_size, 0)
    assert (after.global_size, len(after.features), after.is_sweep_end) == (0, 0, False)


def test_without_randomize_the_order_is_the_files() -> None:
    source = make_source(randomize=False)
    stream = torch.cat([source.next_minibatch(50).indices for _ in range(5)])
    assert stream.tolist() == [i % NUM_SAMPLES for i in range(250)]


def test_seed_names_the_order() -> None:
    orders = [make_source(seed).next_minibatch(NUM_SAMPLES).indices.tolist() for seed in (0, 1, 0)]
    assert orders[0] == orders[2] != orders[1]


def test_orders_of_neighbouring_seeds_and_sweeps_do_not_repeat() -> None:
    """Seed s in sweep 1 must not be seed s + 1 in sweep 0, as it is with CNTK."""
    orders = {
        tuple(source.next_minibatch(NUM_SAMPLES).indices.tolist())
        for source in [make_source(seed) for seed in (*range(10), 2**32, 2**32 + 1, 2**64)]
        for _ in range(5)
    }
    assert len(orders) == 13 * 5


@pytest.mark.parametrize("steps_before", [0, 1, 2, 3, 9])
@pytest.mark.parametrize("randomize", [True, False])
def test_restored_source_goes_on_at_the_sample_with_any_number_of_ranks(
    steps_before: int, randomize: bool
) -> None:
    source = make_source(seed=3, randomize=randomize)
    for _ in range(steps_before):
        source.next_minibatch(41, 2, 1)
    state = json.loads(json.dumps(source.state_dict()))
    expected = [source.next_minibatch(41).indices.tolist() for _ in range(6)]
    restored = [make_source() for _ in range(3)]
    for rank in restored:
        rank.next_minibatch(7)
        rank.load_state_dict(state)
    steps = [[rank.next_minibatch(41, 3, r) for r, rank in enumerate(restored)] for _ in range(6)]
    assert [indices_of(step) for step in steps] == expected


def test_changing_a_minibatch_leaves_the_source_alone() -> None:
    source, untouched = make_source(), make_source()
    minibatch = source.next_minibatch(30)
    untouched.next_minibatch(30)
    for tensor in (minibatch.indices, minibatch.features, minibatch.labels):
        tensor.zero_()
    for _ in range(6):
        left, right = source.next_minibatch(30), untouched.next_minibatch(30)
        assert torch.equal(left.indices, right.indices)
        assert torch.equal(left.features, right.features)
        assert torch.equal(left.labels, right.labels)


def test_state_of_another_dataset_is_refused() -> None:
    other = MinibatchSource((torch.zeros(5, 1), torch.zeros(5)))
    with pytest.raises(ValueError, match="5 samples, this source has 103"):
        make_source().load_state_dict(other.state_dict())


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="5 rows but labels 4"):
        MinibatchSource((torch.zeros(5, 1), torch.zeros(4)))
    with pytest.raises(ValueError, match="at least one sample"):
        MinibatchSource((torch.zeros(0, 1), torch.zeros(0)))
    with pytest.raises(ValueError, match="got -1"):
        make_source(seed=-1)
    with pytest.raises(ValueError, match="got 0"):
        make_source(max_sweeps=0)
    with pytest.raises(ValueError, match="size=0"):
        make_source().next_minibatch(0)
    with pytest.raises(ValueError, match="0 to 1, got 2"):
        make_source().next_minibatch(8, 2, 2)
