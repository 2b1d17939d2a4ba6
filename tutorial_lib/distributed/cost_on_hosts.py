"""What a collective costs on ranks that share hosts: flat, or aware of who lives where.

A round of an algorithm takes as long as its slowest message, and the messages that leave a host in
one round share its way out. The network between hosts is taken to carry all hosts' messages at
once; a switch that is too small for that would add to these times.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tutorial_lib.distributed.cost_model import (
    DOUBLING,
    HALVING,
    PAIRWISE,
    REDUCTIONS,
    RING,
    Network,
    all_reduce_s,
    collective_s,
)

Ranks = NDArray[np.int64]


class Round(NamedTuple):
    """One round of an algorithm: at most one message to and from each rank.

    Attributes:
        senders: Ranks.
        receivers: Of their messages, in the same order.
        sent: Bytes of each message, per byte of the tensor.
        added: Bytes that a receiver adds, likewise.
        repeats: How many such rounds follow one another.
    """

    senders: Ranks
    receivers: Ranks
    sent: float
    added: float
    repeats: int = 1


def rounds(algorithm: str, ranks: int) -> Iterator[Round]:
    """Who sends how much to whom, round by round; see ``coefficients``.

    Args:
        algorithm: One of the names there.
        ranks: 1 or more.
    """
    everyone = np.arange(ranks)
    if algorithm == RING:
        if ranks > 1:
            after = (everyone + 1) % ranks
            yield Round(everyone, after, 1 / ranks, 1 / ranks, ranks - 1)  # sum the parts
            yield Round(everyone, after, 1 / ranks, 0.0, ranks - 1)  # and hand them round
        return
    if algorithm == PAIRWISE:
        for distance in range(1, ranks):
            yield Round(everyone, (everyone + distance) % ranks, 1 / ranks, 0.0)
        return
    whole = 1 << (ranks.bit_length() - 1)
    extra = np.arange(ranks - whole)  # each gives its part to the rank beside it
    idle, stand_ins = 2 * extra, 2 * extra + 1
    active = np.setdiff1d(everyone, idle)
    if len(extra):
        yield Round(idle, stand_ins, 1.0, 1.0)
    distances = [1 << k for k in range(whole.bit_length() - 1)]
    places = np.arange(whole)
    for distance in distances:
        size = 1.0 if algorithm == DOUBLING else 1 / (2 * distance)
        yield Round(active, active[places ^ distance], size, size)
    for distance in reversed(distances) if algorithm == HALVING else ():
        yield Round(active, active[places ^ distance], 1 / (2 * distance), 0.0)
    if len(extra):
        yield Round(stand_ins, idle, 1.0, 0.0)


@dataclass(frozen=True)
class Layout:
    """Where ranks live: equally many on each host.

    Attributes:
        hosts: Their number.
        ranks_per_host: Of each.
        inside: The network within a host.
        between: The network between hosts; the ranks of one host share their way out.
        is_by_node: Whether ranks were dealt out one to each host in turn; else the first host was
            filled first.
    """

    hosts: int
    ranks_per_host: int
    inside: Network
    between: Network
    is_by_node: bool = False

    @property
    def ranks(self) -> int:
        """World size."""
        return self.hosts * self.ranks_per_host

    def home(self, ranks: Ranks) -> Ranks:
        """The number of each rank's host."""
        return ranks % self.hosts if self.is_by_node else ranks // self.ranks_per_host


def flat_s(algorithm: str, nbytes: float, layout: Layout) -> float:
    """How long an algorithm takes that doesn't know who shares a host.

    Args:
        algorithm: One that both networks have a link for.
        nbytes: Of one rank's tensor.
        layout: Where the ranks are.

    Returns:
        Seconds; 0 for one rank.
    """
    inside, between = layout.inside.links[algorithm], layout.between.links[algorithm]
    total_s = 0.0
    for each in rounds(algorithm, layout.ranks):
        homes = layout.home(each.senders)
        is_crossing = homes != layout.home(each.receivers)
        size = each.sent * nbytes
        slowest_s = 0.0
        if not is_crossing.all():
            slowest_s = inside.latency_s + size * inside.s_per_byte
        if is_crossing.any():
            most = np.bincount(homes[is_crossing]).max()  # messages that leave one host
            shared_s = between.latency_s + size * between.s_per_byte * float(most)
            slowest_s = max(slowest_s, shared_s)
        adding_s = each.added * nbytes * layout.inside.add_s_per_byte
        total_s += each.repeats * (slowest_s + adding_s)
    return total_s


def flat_all_reduce_s(nbytes: float, layout: Layout) -> float:
    """How long the quickest all-reduce takes that doesn't know who shares a host.

    Args:
        nbytes: Of the tensor.
        layout: Where the ranks are.

    Returns:
        Seconds; 0 for one rank.
    """
    common = layout.inside.links.keys() & layout.between.links.keys() & set(REDUCTIONS)
    return min(flat_s(algorithm, nbytes, layout) for algorithm in common)


def hierarchical_all_reduce_s(nbytes: float, layout: Layout) -> float:
    """How long an all-reduce takes that knows the hosts; the quicker of two ways.

    - Stripes: the ranks of a host sum and share out the tensor, each sums its stripe with its
      peers on the other hosts, and the host puts the stripes together again.
    - Leaders: the ranks of a host send all to one of them, the leaders sum, and hand the result
      down again, both within a host along a binomial tree.

    Either way each host sends the tensor about twice over the network, not each rank.

    Args:
        nbytes: Of the tensor.
        layout: Where the ranks are.

    Returns:
        Seconds; 0 for one rank.
    """
    here, hosts = layout.ranks_per_host, layout.hosts
    gamma = layout.inside.add_s_per_byte
    tree = layout.inside.links[DOUBLING]
    depth = (here - 1).bit_length()
    tree_s = depth * (2 * (tree.latency_s + nbytes * tree.s_per_byte) + nbytes * gamma)
    leaders_s = tree_s + all_reduce_s(nbytes, hosts, layout.between)
    peers = layout.between.shared_by(here)
    stripes_s = within_host_s(nbytes, layout) + all_reduce_s(nbytes / here, hosts, peers)
    return min(leaders_s, stripes_s)


def within_host_s(nbytes: float, layout: Layout) -> float:
    """How long the ranks of a host take to sum a tensor into stripes, and to collect these."""
    links, gamma = layout.inside.links, layout.inside.add_s_per_byte
    return min(
        collective_s(name, nbytes, layout.ranks_per_host, links[name], gamma)
        for name in (HALVING, RING)
        if name in links
    )


def exchange_s(nbytes: float, layout: Layout, is_hierarchical: bool = False) -> float:
    """How long the two exchanges of a quantised sum take: to the owners of parts, and back.

    Args:
        nbytes: Of all packed parts of one rank's tensor.
        layout: Where the ranks are.
        is_hierarchical: Whether only stripes cross between hosts, each rank's with its peers; what
            the ranks of a host do among themselves is not in it, see ``within_host_s``.

    Returns:
        Seconds; 0 for one rank.

    **Source:** Seide et al. (2014), whose stripes and owners they are.
    """
    if not is_hierarchical:
        return 2 * flat_s(PAIRWISE, nbytes, layout)
    here = layout.ranks_per_host
    link = layout.between.links[PAIRWISE].shared_by(here)
    return 2 * collective_s(PAIRWISE, nbytes / here, layout.hosts, link)
