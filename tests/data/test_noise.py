from __future__ import annotations

import numpy as np
import pytest
import torch

from tutorial_lib.data.noise import NoiseSource

SIZES = [1024, 7, 1, 3, 500]


@pytest.mark.parametrize("dim", [1, 7, 100])
@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 10])
def test_ranks_together_draw_the_one_stream(world_size: int, dim: int) -> None:
    ranks = [NoiseSource(dim) for _ in range(world_size)]
    drawn = [rank.next(size, world_size, r) for size in SIZES for r, rank in enumerate(ranks)]
    assert torch.equal(torch.cat(drawn), NoiseSource(dim).next(sum(SIZES)))


def test_stream_is_philox_of_the_seed() -> None:
    expected = np.random.Generator(np.random.Philox(key=123)).random(64 * 100, np.float32)
    assert np.array_equal(NoiseSource().next(64).numpy().ravel(), 2 * expected - 1)


def test_values_are_uniform_in_minus_1_to_1() -> None:
    noise = NoiseSource().next(10_000)
    assert noise.dtype == torch.float32
    assert noise.shape == (10_000, 100)
    assert noise.min() >= -1
    assert noise.max() < 1
    counts = torch.histc(noise, bins=20, min=-1, max=1)
    assert counts.sum() == noise.numel()
    # 20 bins of 50,000: each within 5 standard deviations.
    assert (counts - noise.numel() / 20).abs().max() < 5 * (noise.numel() * 0.05 * 0.95) ** 0.5


def test_all_rows_differ_between_ranks_and_calls() -> None:
    ranks = [NoiseSource() for _ in range(4)]
    rows = torch.cat([rank.next(1024, 4, r) for _ in range(3) for r, rank in enumerate(ranks)])
    assert len(rows.unique(dim=0)) == 3 * 1024


def test_seeds_give_different_streams() -> None:
    assert not torch.equal(NoiseSource(seed=1).next(8), NoiseSource(seed=2).next(8))


def test_restored_stream_goes_on_with_any_number_of_ranks() -> None:
    source = NoiseSource(seed=5)
    source.next(13, 2, 1)
    state = source.state_dict()
    expected = source.next(10)
    restored = [NoiseSource(seed=99) for _ in range(3)]
    for rank in restored:
        rank.load_state_dict(state)
    assert torch.equal(
        torch.cat([rank.next(10, 3, r) for r, rank in enumerate(restored)]), expected
    )


def test_state_of_another_dim_is_refused() -> None:
    with pytest.raises(ValueError, match="dim 100, this source has 7"):
        NoiseSource(dim=7).load_state_dict(NoiseSource().state_dict())


@pytest.mark.parametrize(("dim", "seed"), [(0, 1), (-1, 1), (1, -1)])
def test_arguments_out_of_range_are_refused(dim: int, seed: int) -> None:
    with pytest.raises(ValueError, match="got"):
        NoiseSource(dim, seed)
