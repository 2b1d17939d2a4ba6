"""What messages cost: by the books' formulas, by hand, and round by round."""

from __future__ import annotations

import numpy as np
import pytest

from tutorial_lib.distributed.cost_model import (
    DOUBLING,
    HALVING,
    PAIRWISE,
    REDUCTIONS,
    RING,
    Link,
    Network,
    all_reduce_s,
    coefficients,
    collective_s,
)
from tutorial_lib.distributed.cost_on_hosts import (
    Layout,
    exchange_s,
    flat_all_reduce_s,
    flat_s,
    hierarchical_all_reduce_s,
    rounds,
)

INSIDE = Network.of_one_link(Link(1e-6, 1e-10), add_s_per_byte=2e-11)
BETWEEN = Network.of_one_link(Link(25e-6, 8e-10), add_s_per_byte=2e-11)
MEGABYTE = 1e6


@pytest.mark.parametrize(
    ("algorithm", "ranks", "expected"),
    [
        (DOUBLING, 8, (3, 3, 3)),
        (DOUBLING, 6, (4, 4, 3)),  # two fold, then four double, then two get the result
        (HALVING, 8, (6, 2 * 7 / 8, 7 / 8)),
        (HALVING, 5, (6, 2 * 3 / 4 + 2, 3 / 4 + 1)),
        (RING, 8, (14, 2 * 7 / 8, 7 / 8)),
        (RING, 5, (8, 2 * 4 / 5, 4 / 5)),
        (PAIRWISE, 5, (4, 4 / 5, 0)),
    ],
)
def test_formulas(algorithm: str, ranks: int, expected: tuple[float, ...]) -> None:
    assert coefficients(algorithm, ranks) == pytest.approx(expected)


def test_a_value_by_hand() -> None:
    # 6 messages of 1 µs; 2 * 7/8 MB at 0.1 ns a byte; 7/8 MB added at 0.02 ns a byte.
    found = collective_s(HALVING, MEGABYTE, 8, Link(1e-6, 1e-10), 2e-11)
    assert found == pytest.approx(6e-6 + 175e-6 + 17.5e-6)


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8, 12, 64])
@pytest.mark.parametrize("algorithm", [*REDUCTIONS, PAIRWISE])
def test_rounds_add_up_to_the_formula(algorithm: str, ranks: int) -> None:
    layout = Layout(1, ranks, INSIDE, BETWEEN)
    expected = collective_s(algorithm, MEGABYTE, ranks, INSIDE.links[algorithm], 2e-11)
    assert flat_s(algorithm, MEGABYTE, layout) == pytest.approx(expected)


@pytest.mark.parametrize("ranks", [2, 3, 5, 8, 12])
@pytest.mark.parametrize("algorithm", [DOUBLING, HALVING])
def test_rounds_bring_every_rank_the_whole_sum(algorithm: str, ranks: int) -> None:
    """Follow who has heard of whom: at the end all have heard of all."""
    heard = [{rank} for rank in range(ranks)]
    for each in rounds(algorithm, ranks):
        pairs = zip(each.senders.tolist(), each.receivers.tolist(), strict=True)
        arriving = [(receiver, set(heard[sender])) for sender, receiver in pairs]
        assert len({receiver for receiver, _ in arriving}) == len(arriving)
        for receiver, news in arriving:
            heard[receiver] |= news
    assert all(known == set(range(ranks)) for known in heard)


def test_one_rank_needs_no_message() -> None:
    alone = Layout(1, 1, INSIDE, BETWEEN)
    assert all_reduce_s(MEGABYTE, 1, INSIDE) == 0
    assert flat_all_reduce_s(MEGABYTE, alone) == 0
    assert hierarchical_all_reduce_s(MEGABYTE, alone) == 0
    assert exchange_s(MEGABYTE, alone) == exchange_s(MEGABYTE, alone, is_hierarchical=True) == 0


def test_more_bytes_and_more_hosts_never_take_less() -> None:
    sizes = [1, 64, 4096, 1 << 18, 1 << 26]
    for cost in (flat_all_reduce_s, hierarchical_all_reduce_s, exchange_s):
        for hosts in (1, 2, 8, 128):
            times = [cost(n, Layout(hosts, 8, INSIDE, BETWEEN)) for n in sizes]
            assert times == sorted(times)
        for n in sizes:
            times = [cost(n, Layout(hosts, 8, INSIDE, BETWEEN)) for hosts in (1, 2, 8, 128)]
            assert times == sorted(times)


def test_flat_ring_by_hand() -> None:
    """Host after host, each round of a ring waits for its one message between hosts."""
    found = flat_s(RING, MEGABYTE, Layout(2, 4, INSIDE, BETWEEN))
    part = MEGABYTE / 8
    assert found == pytest.approx(14 * (25e-6 + part * 8e-10) + 7 * part * 2e-11)


def test_ranks_that_are_dealt_out_crowd_the_way_out() -> None:
    """By node, all four ranks of a host send to the other one at once."""
    found = flat_s(RING, MEGABYTE, Layout(2, 4, INSIDE, BETWEEN, is_by_node=True))
    part = MEGABYTE / 8
    assert found == pytest.approx(14 * (25e-6 + 4 * part * 8e-10) + 7 * part * 2e-11)


def test_recursive_doubling_by_hand() -> None:
    """Two rounds inside a host of 4, then one in which 4 ranks share the way out."""
    found = flat_s(DOUBLING, MEGABYTE, Layout(2, 4, INSIDE, BETWEEN))
    inside = 2 * (1e-6 + MEGABYTE * 1e-10)
    assert found == pytest.approx(inside + 25e-6 + 4 * MEGABYTE * 8e-10 + 3 * MEGABYTE * 2e-11)


def test_hierarchical_by_hand() -> None:
    """Stripes of a quarter: halving inside 4 ranks, then doubling between 2 hosts."""
    found = hierarchical_all_reduce_s(MEGABYTE, Layout(2, 4, INSIDE, BETWEEN))
    inside = 4 * 1e-6 + MEGABYTE * (1.5 * 1e-10 + 0.75 * 2e-11)
    quarter = MEGABYTE / 4
    between = [
        25e-6 + quarter * (4 * 8e-10 + 2e-11),  # recursive doubling
        50e-6 + quarter * (4 * 8e-10 + 1e-11),  # in halves
    ]
    assert found == pytest.approx(inside + min(between))


def test_short_messages_go_by_leaders() -> None:
    found = hierarchical_all_reduce_s(0, Layout(8, 4, INSIDE, BETWEEN))
    assert found == pytest.approx(2 * 2 * 1e-6 + 3 * 25e-6)


def test_exchange_by_hand() -> None:
    """Of 7 rounds on 2 hosts of 4, each has messages out of the host: 1, 2, 3, 4, 3, 2, 1."""
    found = exchange_s(MEGABYTE, Layout(2, 4, INSIDE, BETWEEN))
    part = MEGABYTE / 8
    assert found == pytest.approx(2 * (7 * 25e-6 + 16 * part * 8e-10))
    hierarchical = exchange_s(MEGABYTE, Layout(2, 4, INSIDE, BETWEEN), is_hierarchical=True)
    assert hierarchical == pytest.approx(2 * (25e-6 + MEGABYTE / 4 / 2 * 4 * 8e-10))


def test_homes() -> None:
    ranks = np.arange(6)
    assert Layout(3, 2, INSIDE, BETWEEN).home(ranks).tolist() == [0, 0, 1, 1, 2, 2]
    assert Layout(3, 2, INSIDE, BETWEEN, True).home(ranks).tolist() == [0, 1, 2, 0, 1, 2]
