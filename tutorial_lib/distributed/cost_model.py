"""What a message costs: the α-β model of collectives on one network.

A message of n bytes takes α + nβ: a latency, and a time per byte. Whoever adds received numbers to
its own spends γ per byte on that. A collective is a sequence of rounds; in each, every rank sends
at most one message and receives at most one. Nothing else is modelled: neither noise, nor waiting
for a rank that is late. Here all ranks are equally far from each other; ``cost_on_hosts`` tells
what hosts change.

**Source:** Hockney, The communication challenge for MPP, Parallel Computing 20 (1994); Thakur,
Rabenseifner and Gropp, Optimization of collective communication operations in MPICH, IJHPCA 19
(2005).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

DOUBLING = "recursive doubling"
HALVING = "halving and doubling"
RING = "ring"
PAIRWISE = "pairwise exchange"
REDUCTIONS = (DOUBLING, HALVING, RING)


@dataclass(frozen=True)
class Link:
    """What a message costs on its way.

    Attributes:
        latency_s: α, in seconds for a message.
        s_per_byte: β, in seconds for a byte.
    """

    latency_s: float
    s_per_byte: float

    @property
    def bytes_per_s(self) -> float:
        """The bandwidth, 1 / β."""
        return 1 / self.s_per_byte if self.s_per_byte else float("inf")

    def shared_by(self, senders: float) -> Link:
        """The link as one of so many senders sees it who use it at the same time."""
        return Link(self.latency_s, self.s_per_byte * senders)


@dataclass(frozen=True)
class Network:
    """What connects ranks: a link for each algorithm that may be used on it.

    MPI libraries send short and long messages by different protocols, so each algorithm has its
    own α and β. Whichever is quickest counts, as MPI libraries choose by the size of a message.

    Attributes:
        links: By the algorithm's name.
        add_s_per_byte: γ, in seconds for a byte that is added to another one.
    """

    links: Mapping[str, Link]
    add_s_per_byte: float = 0.0

    @classmethod
    def of_one_link(cls, link: Link, add_s_per_byte: float = 0.0) -> Network:
        """The same α and β for every algorithm: all that is known of a network from its label."""
        return cls(dict.fromkeys((*REDUCTIONS, PAIRWISE), link), add_s_per_byte)

    def shared_by(self, senders: float) -> Network:
        """The network as one of so many ranks sees it that share a host's way out."""
        links = {name: link.shared_by(senders) for name, link in self.links.items()}
        return Network(links, self.add_s_per_byte)


class Coefficients(NamedTuple):
    """An algorithm's time is ``messages`` α + ``sent`` β + ``added`` γ.

    Attributes:
        messages: That one rank sends one after another.
        sent: Bytes that it sends in them, per byte of the tensor.
        added: Bytes that it adds, per byte of the tensor.
    """

    messages: float
    sent: float
    added: float


def coefficients(algorithm: str, ranks: int) -> Coefficients:
    """What an algorithm does on so many ranks that are all equally far from each other.

    - Recursive doubling: in round k every rank exchanges all it has with the one 2^k away.
    - Halving and doubling (Rabenseifner's): the tensor is halved in each round until every rank
      has summed one part, and the parts are collected on the way back.
    - Ring: the tensor is cut into as many parts as ranks, and each part goes round twice.
    - Pairwise exchange (an all-to-all): each rank sends every other one its own part.

    The first two need a power of two; the ranks beyond it give theirs to another rank first, and
    get the result last.

    Args:
        algorithm: One of the names above.
        ranks: 1 or more.

    Raises:
        KeyError: Another name.

    **Source:** Thakur, Rabenseifner and Gropp (2005), sections 4.1 and 4.4.
    """
    whole = 1 << (ranks.bit_length() - 1)
    fold = 1.0 if ranks > whole else 0.0
    rounds = whole.bit_length() - 1
    part = (whole - 1) / whole
    each = (ranks - 1) / ranks
    table = {
        DOUBLING: Coefficients(rounds + 2 * fold, rounds + 2 * fold, rounds + fold),
        HALVING: Coefficients(2 * rounds + 2 * fold, 2 * part + 2 * fold, part + fold),
        RING: Coefficients(2.0 * (ranks - 1), 2 * each, each),
        PAIRWISE: Coefficients(float(ranks - 1), each, 0.0),
    }
    return table[algorithm]


def collective_s(
    algorithm: str, nbytes: float, ranks: int, link: Link, add_s_per_byte: float = 0.0
) -> float:
    """How long one algorithm takes on ranks that are all equally far from each other.

    Args:
        algorithm: See ``coefficients``.
        nbytes: Of one rank's tensor.
        ranks: 1 or more.
        link: Between any two of them.
        add_s_per_byte: γ.

    Returns:
        Seconds; 0 for one rank.
    """
    messages, sent, added = coefficients(algorithm, ranks)
    bytes_s = sent * link.s_per_byte + added * add_s_per_byte
    return messages * link.latency_s + nbytes * bytes_s


def all_reduce_s(nbytes: float, ranks: int, network: Network) -> float:
    """How long the quickest all-reduce takes on ranks of one network.

    Args:
        nbytes: Of the tensor.
        ranks: 1 or more.
        network: Between them.

    Returns:
        Seconds; 0 for one rank.
    """
    return min(
        collective_s(name, nbytes, ranks, link, network.add_s_per_byte)
        for name, link in network.links.items()
        if name in REDUCTIONS
    )
