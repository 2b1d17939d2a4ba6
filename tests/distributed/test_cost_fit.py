"""Known latencies and bandwidths are found again, also from disturbed times."""

from __future__ import annotations

import numpy as np
import pytest

from tutorial_lib.distributed.cost_fit import (
    Timing,
    errors,
    exchange_errors,
    fit_link,
    fit_network,
    held_out,
    reduction_errors,
    robust_line,
)
from tutorial_lib.distributed.cost_model import (
    DOUBLING,
    HALVING,
    PAIRWISE,
    RING,
    Link,
    Network,
    all_reduce_s,
    collective_s,
)

SIZES = [1, *(4**k for k in range(1, 14))]
GAMMA = 2e-11
SHORT, LONG, EXCHANGE = Link(15e-6, 2e-9), Link(25e-6, 3e-10), Link(20e-6, 4e-10)


def timings(network: Network, counts: list[int], noise: float = 0.0) -> list[Timing]:
    stream = np.random.default_rng(1)
    return [
        Timing(ranks, n, all_reduce_s(n, ranks, network) * float(np.exp(stream.normal(0, noise))))
        for ranks in counts
        for n in SIZES
    ]


@pytest.fixture(params=[HALVING, RING])
def network(request: pytest.FixtureRequest) -> Network:
    return Network({DOUBLING: SHORT, request.param: LONG}, GAMMA)


def test_exact_times_give_the_numbers_back(network: Network) -> None:
    found = fit_network(timings(network, [2, 4, 8]), add_s_per_byte=GAMMA)
    assert found.links.keys() == network.links.keys()
    for name, link in network.links.items():
        assert found.links[name].latency_s == pytest.approx(link.latency_s, rel=0.02)
        assert found.links[name].s_per_byte == pytest.approx(link.s_per_byte, rel=0.02)
    assert all(
        each.largest < 0.02 for each in reduction_errors(found, timings(network, [16])).values()
    )


def test_noise_and_outliers_move_little(network: Network) -> None:
    disturbed = timings(network, [2, 4, 8], noise=0.1)
    for place in (1, 12, 20, 30):  # what another process does to a measurement
        disturbed[place] = disturbed[place]._replace(seconds=20 * disturbed[place].seconds)
    found = fit_network(disturbed, add_s_per_byte=GAMMA)
    told = reduction_errors(found, timings(network, [2, 4, 8]))
    assert all(each.median < 0.15 for each in told.values())


def test_exchanges_are_fitted_by_themselves(network: Network) -> None:
    measured = [
        Timing(ranks, n, collective_s(PAIRWISE, n, ranks, EXCHANGE))
        for ranks in (2, 3)
        for n in SIZES
    ]
    found = fit_network(timings(network, [2]), measured, GAMMA)
    assert found.links[PAIRWISE].latency_s == pytest.approx(EXCHANGE.latency_s)
    assert found.links[PAIRWISE].s_per_byte == pytest.approx(EXCHANGE.s_per_byte)
    assert exchange_errors(found, measured)[3].largest < 1e-6


def test_fewer_ranks_predict_the_most(network: Network) -> None:
    found = held_out(timings(network, [2, 4, 8]), GAMMA)
    assert list(found) == [8]
    assert found[8].largest < 0.05
    assert held_out(timings(network, [2]), GAMMA) == {}


def test_nothing_is_below_zero() -> None:
    line = robust_line([1.0] * 4, [1.0, 2.0, 3.0, 4.0], [4.0, 3.0, 2.0, 1.0])
    assert line.slope == 0
    assert line.fixed > 0
    link = fit_link(DOUBLING, [Timing(2, 1, 1e-6), Timing(2, 1 << 20, 1e-3)], 1.0)
    assert link.latency_s >= 0
    assert link.s_per_byte >= 0


def test_too_few_values_are_told() -> None:
    with pytest.raises(ValueError, match="from 1 values: measure more"):
        robust_line([1.0], [1.0], [1.0])
    with pytest.raises(ValueError, match="all-reduces of 4 sizes; 6 or more"):
        fit_network([Timing(2, n, 1e-5) for n in (1, 4, 16, 64)])


def test_errors_in_words() -> None:
    assert str(errors([(1.1, 1.0), (0.8, 1.0), (1.0, 1.0)])) == "median 10%, largest 20%"
