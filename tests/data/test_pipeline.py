import threading
import time

import pytest
import torch

from tutorial_lib.data.pipeline import Pipeline


def data(n=23):
    return torch.arange(n).float()[:, None], torch.arange(n)


def drawn(pipeline, steps):
    return [pipeline.next() for _ in range(steps)]


def jitter(x, random):
    return x + random[:, :1]


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 7])
def test_any_data_over_any_ranks_is_disjoint_and_complete_in_equal_steps(world_size):
    for n in (1, 5, 8, 23):
        ranks = [
            Pipeline(data(n), 2 * world_size, (world_size, rank)) for rank in range(world_size)
        ]
        steps = ranks[0].steps_per_sweep
        assert {pipeline.steps_per_sweep for pipeline in ranks} == {steps}
        sweep = [drawn(pipeline, steps) for pipeline in ranks]
        taken = [p.y[: p.count] for part in sweep for p in part]
        assert torch.cat(taken).sort().values.tolist() == list(range(n)), "each sample once"
        for together in zip(*sweep, strict=True):
            counts = [p.count for p in together]
            assert sum(counts) == together[0].global_size
            assert max(counts) - min(counts) <= 1
            assert (
                len({(p.global_size, p.sweep, p.is_sweep_end, p.position) for p in together}) == 1
            )
            assert all(len(p.x) == max(p.count, 1) for p in together), "every rank has a step"
        assert [p.is_sweep_end for p in sweep[0]] == [False] * (steps - 1) + [True]


def test_sweeps_are_shuffled_anew_and_alike_for_equal_seeds():
    first, second = (drawn(Pipeline(data(), 23, seed=3), 2) for _ in range(2))
    assert torch.equal(first[1].y, second[1].y)
    assert not torch.equal(first[0].y, first[1].y)


@pytest.mark.parametrize("world_size", [2, 3])
def test_ranks_augment_as_one_rank_does(world_size):
    whole = drawn(Pipeline(data(), 6, seed=1, batch_map=jitter), 5)
    ranks = [
        drawn(Pipeline(data(), 6, (world_size, rank), 1, jitter, prefetch_size=2), 5)
        for rank in range(world_size)
    ]
    for step, parts in zip(whole, zip(*ranks, strict=True), strict=True):
        assert torch.equal(torch.cat([p.x[: p.count] for p in parts]), step.x)


def test_the_same_sample_is_augmented_otherwise_in_the_next_sweep():
    first, second = drawn(Pipeline(data(1), 1, batch_map=jitter), 2)
    assert not torch.equal(first.x, second.x)


def test_a_rank_augments_its_own_samples_only():
    seen = []
    Pipeline(data(), 8, (4, 1), batch_map=lambda x, r: seen.append(len(x)) or x).next()
    assert seen == [2]


def wait_for(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_minibatches_are_prepared_while_the_current_one_trains():
    prepared = []
    main = threading.get_ident()

    def note(x, random):
        prepared.append(threading.get_ident())
        return x

    pipeline = Pipeline(data(), 4, batch_map=note, prefetch_size=3)
    pipeline.next()
    wait_for(lambda: len(prepared) == 4)  # this one, and three ahead
    time.sleep(0.05)
    assert len(prepared) == 4, "no more than asked for"
    assert main not in prepared
    pipeline.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("prefetch")]


def test_what_is_prepared_ahead_changes_nothing():
    plain = drawn(Pipeline(data(), 4, batch_map=jitter), 8)
    ahead = Pipeline(data(), 4, batch_map=jitter, prefetch_size=3)
    first = drawn(ahead, 3)
    ahead.close()  # between two steps, too
    rest = drawn(ahead, 5)
    ahead.close()
    for one, other in zip(plain, first + rest, strict=True):
        assert torch.equal(one.x, other.x)


@pytest.mark.parametrize("prefetch_size", [0, 2])
def test_state_is_what_was_handed_out(prefetch_size):
    pipeline = Pipeline(data(), 4, batch_map=jitter, prefetch_size=prefetch_size)
    drawn(pipeline, 7)
    state = pipeline.state_dict()
    expected = drawn(pipeline, 3)
    later = Pipeline(data(), 4, seed=9, batch_map=jitter, prefetch_size=prefetch_size)
    later.next()
    later.load_state_dict(state)
    for one, other in zip(expected, drawn(later, 3), strict=True):
        assert torch.equal(one.x, other.x)
    pipeline.close()
    later.close()


def test_an_error_in_the_map_comes_out_in_the_step():
    def broken(x, random):
        raise KeyError("my own mistake")

    pipeline = Pipeline(data(), 4, batch_map=broken, prefetch_size=2)
    with pytest.raises(KeyError, match="my own mistake"):
        pipeline.next()
    pipeline.close()


@pytest.mark.parametrize(("size", "prefetch_size"), [(0, 0), (4, -1)])
def test_senseless_sizes_are_refused(size, prefetch_size):
    with pytest.raises(ValueError, match="size is 1 or more"):
        Pipeline(data(), size, prefetch_size=prefetch_size)
