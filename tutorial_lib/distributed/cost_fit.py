"""α and β from measured collectives, and how far what they predict is from what was measured."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tutorial_lib.distributed.cost_model import (
    DOUBLING,
    HALVING,
    PAIRWISE,
    RING,
    Link,
    Network,
    all_reduce_s,
    coefficients,
    collective_s,
)

FEWEST_SIZES = 3  # that one algorithm's two numbers may be fitted to
SHORT_BYTES = 1024  # up to here no MPI library cuts a tensor in parts
ROUNDS = 30  # of reweighting
ROBUST = 1.5  # Huber's limit, in units of the typical error

Array = NDArray[np.float64]


class Timing(NamedTuple):
    """One measured collective.

    Attributes:
        ranks: That took part, 2 or more.
        nbytes: Of one rank's tensor.
        seconds: How long it took.
    """

    ranks: int
    nbytes: float
    seconds: float


class Line(NamedTuple):
    """Two numbers of a fit, neither below 0."""

    fixed: float
    slope: float


@dataclass(frozen=True)
class Errors:
    """How far a model is from what was measured, as shares of what was measured.

    Attributes:
        median: Half of the measurements are closer.
        largest: None is further.
    """

    median: float
    largest: float

    def __str__(self) -> str:
        return f"median {self.median:.0%}, largest {self.largest:.0%}"


def errors(pairs: Iterable[tuple[float, float]]) -> Errors:
    """Compare a model with measurements.

    Args:
        pairs: Of a modelled and a measured value each, at least one.
    """
    apart = [abs(modelled / measured - 1) for modelled, measured in pairs]
    return Errors(statistics.median(apart), max(apart))


def robust_line(fixed: Sequence[float], slope: Sequence[float], values: Sequence[float]) -> Line:
    """Find two numbers, neither below 0, for which ``fixed * a + slope * b`` is near the values.

    What counts is the error as a share of the value, since times from microseconds to
    milliseconds stand side by side; and a value that is far off counts less (Huber's weights),
    since other work on the machine makes single times much too long.

    Args:
        fixed: (n,), of each value: what the first number is multiplied by.
        slope: (n,), likewise the second.
        values: (n,), above 0.

    Returns:
        The two numbers.

    Raises:
        ValueError: There are fewer than two values: measure more.
    """
    if len(values) < 2:
        raise ValueError(f"two numbers can't be found from {len(values)} values: measure more")
    y = np.asarray(values, dtype=float)
    rows = np.stack([np.asarray(fixed, dtype=float), np.asarray(slope, dtype=float)], 1)
    rows = rows / y[:, None]
    scale = np.abs(rows).max(0)
    scale[scale == 0] = 1.0
    rows = rows / scale  # bytes are millions and messages are few
    weights = np.ones(len(y))
    found = np.zeros(2)
    for _ in range(ROUNDS):
        found = _not_negative(rows, weights)
        apart = np.abs(rows @ found - 1)
        typical = max(1.4826 * float(np.median(apart)), 1e-9)
        weights = np.minimum(1.0, ROBUST * typical / np.maximum(apart, 1e-12))
    a, b = found / scale
    return Line(float(a), float(b))


def _not_negative(rows: Array, weights: Array) -> Array:
    """Weighted least squares of ``rows @ x = 1`` with x >= 0, by trying which of two are 0."""
    root = np.sqrt(weights)
    target = root
    best, least = np.zeros(2), float("inf")
    for free in ([0, 1], [0], [1]):
        part, *_ = np.linalg.lstsq(rows[:, free] * root[:, None], target, rcond=None)
        if (part < 0).any():
            continue
        x = np.zeros(2)
        x[free] = part
        loss = float((((rows @ x) * root - target) ** 2).sum())
        if loss < least:
            best, least = x, loss
    return best


def fit_link(algorithm: str, timings: Sequence[Timing], add_s_per_byte: float = 0.0) -> Link:
    """Find the α and β with which one algorithm comes closest to measured times.

    Args:
        algorithm: Of ``cost_model``.
        timings: At least two, of different sizes.
        add_s_per_byte: γ, which was measured on its own: by times of one number of ranks it
            can't be told from β.

    Raises:
        ValueError: There are fewer than two timings: measure more sizes.
    """
    messages, sent, values = [], [], []
    for timing in timings:
        counted = coefficients(algorithm, timing.ranks)
        adding_s = counted.added * timing.nbytes * add_s_per_byte
        messages.append(counted.messages)
        sent.append(counted.sent * timing.nbytes)
        # Where adding alone would take as long as all did, a tenth is left to the message.
        values.append(max(timing.seconds - adding_s, 0.1 * timing.seconds))
    return Link(*robust_line(messages, sent, values))


def fit_network(
    reductions: Sequence[Timing],
    exchanges: Sequence[Timing] = (),
    add_s_per_byte: float = 0.0,
) -> Network:
    """Find α and β of a network from all-reduces of many sizes on one or more numbers of ranks.

    Up to some size the MPI library takes recursive doubling, beyond it one that cuts the tensor in
    parts. Which of these, and from which size on, is what fits best.

    Args:
        reductions: Measured all-reduces of at least six sizes.
        exchanges: Measured all-to-alls; none leaves them out of the network.
        add_s_per_byte: γ.

    Returns:
        The network.

    Raises:
        ValueError: There are fewer than six sizes: measure more.
    """
    sizes = sorted({timing.nbytes for timing in reductions})
    if len(sizes) < 2 * FEWEST_SIZES:
        raise ValueError(
            f"all-reduces of {len(sizes)} sizes; {2 * FEWEST_SIZES} or more are needed to tell "
            "short messages from long ones"
        )
    limits = sizes[FEWEST_SIZES : len(sizes) - FEWEST_SIZES + 1]
    candidates = []
    for limit in [limit for limit in limits if limit > SHORT_BYTES] or limits:
        short = [timing for timing in reductions if timing.nbytes < limit]
        long = [timing for timing in reductions if timing.nbytes >= limit]
        for algorithm in (HALVING, RING):
            links = {
                DOUBLING: fit_link(DOUBLING, short, add_s_per_byte),
                algorithm: fit_link(algorithm, long, add_s_per_byte),
            }
            candidates.append(Network(links, add_s_per_byte))
    best = min(candidates, key=lambda network: _mean_error(network, reductions))
    if not exchanges:
        return best
    pairwise = {PAIRWISE: fit_link(PAIRWISE, exchanges)}
    return Network({**best.links, **pairwise}, add_s_per_byte)


def reduction_errors(network: Network, timings: Sequence[Timing]) -> dict[int, Errors]:
    """How far a network's all-reduces are from measured ones, by number of ranks."""
    return _errors(timings, lambda t: all_reduce_s(t.nbytes, t.ranks, network))


def exchange_errors(network: Network, timings: Sequence[Timing]) -> dict[int, Errors]:
    """How far a network's all-to-alls are from measured ones, by number of ranks."""
    link = network.links[PAIRWISE]
    return _errors(timings, lambda t: collective_s(PAIRWISE, t.nbytes, t.ranks, link))


def _errors(timings: Sequence[Timing], modelled_s: Callable[[Timing], float]) -> dict[int, Errors]:
    pairs: dict[int, list[tuple[float, float]]] = {}
    for timing in timings:
        pairs.setdefault(timing.ranks, []).append((modelled_s(timing), timing.seconds))
    return {ranks: errors(found) for ranks, found in sorted(pairs.items())}


def _mean_error(network: Network, timings: Sequence[Timing]) -> float:
    """Mean distance of logarithms: half and double are equally far, and outliers count little."""
    times = [all_reduce_s(timing.nbytes, timing.ranks, network) for timing in timings]
    measured = [timing.seconds for timing in timings]
    return float(np.abs(np.log(np.maximum(times, 1e-12)) - np.log(measured)).mean())


def held_out(timings: Sequence[Timing], add_s_per_byte: float = 0.0) -> Mapping[int, Errors]:
    """How well the fewer ranks predict the most: fitted without these, and compared with them.

    Returns:
        The errors on the largest number of ranks, under that number; nothing when only one
        number of ranks was measured, since then nothing is left to fit.
    """
    most = max(timing.ranks for timing in timings)
    fewer = [timing for timing in timings if timing.ranks < most]
    if not fewer:
        return {}
    rest = [timing for timing in timings if timing.ranks == most]
    return reduction_errors(fit_network(fewer, add_s_per_byte=add_s_per_byte), rest)
