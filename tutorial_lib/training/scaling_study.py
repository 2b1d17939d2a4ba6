"""What a scaling study measures, what it fits to that, and what it predicts from it."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from tutorial_lib.distributed import session
from tutorial_lib.distributed.cost_fit import (
    Errors,
    Timing,
    exchange_errors,
    fit_network,
    held_out,
    reduction_errors,
)
from tutorial_lib.distributed.cost_model import Link, Network
from tutorial_lib.distributed.cost_on_hosts import Layout
from tutorial_lib.learners.quantization import LEGAL_BITS, PLAIN_BITS
from tutorial_lib.training.step_model import StepModel, fit_work, step_errors
from tutorial_lib.training.step_time import (
    StepTime,
    TimedGan,
    add_s_per_byte,
    time_all_reduces,
    time_exchanges,
)

SIZES = (1, *(4**k for k in range(1, 14)))  # bytes of an all-reduce: 1 B to 67 MB
EXCHANGED = tuple(4**k for k in range(5, 12))  # of an all-to-all: 1 kB to 4 MB
FEW_SAMPLES = (1, 16, 128)  # of a rank: what is left of a minibatch on many ranks

ETHERNET = Link(latency_s=25e-6, s_per_byte=8 / 10e9)  # 25 µs and 10 Gbit/s


class Round(NamedTuple):
    """What some ranks measured in one go.

    Attributes:
        steps: Of minibatches of several sizes, and of several numbers of bits.
        reductions: All-reduces of several sizes.
        exchanges: All-to-alls of several sizes.
        add_s_per_byte: Of one float32 tensor added to another.
    """

    steps: list[StepTime]
    reductions: list[Timing]
    exchanges: list[Timing]
    add_s_per_byte: float

    def as_json(self) -> dict[str, Any]:
        """Lists and numbers only; ``round_from_json`` reads them."""
        return self._asdict()


def round_from_json(found: dict[str, Any]) -> Round:
    """Read what ``Round.as_json`` wrote."""
    return Round(
        [StepTime(*values) for values in found["steps"]],
        [Timing(*values) for values in found["reductions"]],
        [Timing(*values) for values in found["exchanges"]],
        found["add_s_per_byte"],
    )


def measure(
    minibatch_size: int,
    steps: int,
    all_bits: Sequence[int] = LEGAL_BITS,
    sizes_bytes: Sequence[int] = SIZES,
    exchanged_bytes: Sequence[int] = EXCHANGED,
    data_dir: str | None = None,
) -> Round:
    """Measure on these ranks all that a study wants to know of them.

    Steps are timed with the whole minibatch (strong scaling), with as many samples on each rank
    (weak scaling), with few samples on each rank, and in few bits.

    Args:
        minibatch_size: Of all ranks in strong scaling, of each rank in weak scaling.
        steps: Of each kind, in a row.
        all_bits: In which gradients travel, beside 32.
        sizes_bytes: Of all-reduces.
        exchanged_bytes: Of all-to-alls.
        data_dir: Folder with MNIST; None for the bundled files.

    **Distributed:** collective; the times of steps and messages are equal on all ranks.
    """
    ranks = session.start().world_size
    kinds = [(minibatch_size, PLAIN_BITS), (minibatch_size * ranks, PLAIN_BITS)]
    kinds += [(few * ranks, PLAIN_BITS) for few in FEW_SAMPLES]
    if ranks > 1:
        kinds += [(minibatch_size, bits) for bits in all_bits]
    gans = [TimedGan(size, bits, data_dir) for size, bits in dict.fromkeys(kinds)]
    return Round(
        [gan.time(steps) for gan in gans],
        time_all_reduces(sizes_bytes),
        time_exchanges(exchanged_bytes),
        add_s_per_byte(),
    )


def medians(rounds: Iterable[Round]) -> Round:
    """Join rounds, of one number of ranks or of several, into the medians of what they measured.

    Of a step, the one whose time is the median is taken whole, so that its parts add up; of an even
    number, the quicker of the two in the middle.
    """
    everything = list(rounds)
    steps: dict[tuple[int, int, int], list[StepTime]] = {}
    for found in (one for each in everything for one in each.steps):
        steps.setdefault(found[:3], []).append(found)
    return Round(
        [sorted(group, key=_seconds)[(len(group) - 1) // 2] for group in steps.values()],
        _medians(one for each in everything for one in each.reductions),
        _medians(one for each in everything for one in each.exchanges),
        statistics.median(each.add_s_per_byte for each in everything),
    )


def _seconds(step: StepTime) -> float:
    return step.seconds


def _medians(timings: Iterable[Timing]) -> list[Timing]:
    taken: dict[tuple[int, float], list[float]] = {}
    for timing in timings:
        taken.setdefault((timing.ranks, timing.nbytes), []).append(timing.seconds)
    return [Timing(*key, statistics.median(seconds)) for key, seconds in taken.items()]


class Prediction(NamedTuple):
    """What the model says of some ranks.

    Attributes:
        layout: Where they live.
        bits: In which gradients travel.
        is_hierarchical: Whether the ranks of a host sum among themselves first.
        samples_per_rank: Of a step.
        step_s: Its length in seconds.
        communication: Share of it that is no work on samples.
    """

    layout: Layout
    bits: int
    is_hierarchical: bool
    samples_per_rank: float
    step_s: float
    communication: float

    @property
    def samples_per_s(self) -> float:
        """Samples of all ranks in a second."""
        return self.layout.ranks * self.samples_per_rank / self.step_s


@dataclass(frozen=True)
class Study:
    """Measurements on one host, and the model that they were fitted to.

    Attributes:
        minibatch_size: Of all ranks in strong scaling, of each in weak scaling.
        cores: That the ranks could use.
        found: Medians.
    """

    minibatch_size: int
    cores: int
    found: Round

    @property
    def counts(self) -> list[int]:
        """The numbers of ranks that were measured."""
        return sorted({step.ranks for step in self.found.steps})

    @property
    def fitted_counts(self) -> list[int]:
        """Those that the model is fitted to: no more ranks than cores, unless all are more.

        A rank without a core of its own waits for one, which is no cost of a message.
        """
        several = [ranks for ranks in self.counts if ranks > 1]
        return [ranks for ranks in several if ranks <= self.cores] or several

    def step(self, ranks: int, is_weak: bool = False, bits: int = PLAIN_BITS) -> StepTime:
        """The measured step of strong or of weak scaling.

        Raises:
            KeyError: It was not measured.
        """
        key = (ranks, self.minibatch_size * (ranks if is_weak else 1), bits)
        for step in self.found.steps:
            if step[:3] == key:
                return step
        raise KeyError(f"{ranks} ranks, minibatch {key[1]}, {bits} bits: not measured")

    def efficiency(self, ranks: int, is_weak: bool = False) -> float:
        """Samples a second, as a share of what as many times one rank would make of them."""
        alone = self.step(1).samples_per_s
        return self.step(ranks, is_weak).samples_per_s / (ranks * alone)

    @cached_property
    def network(self) -> Network:
        """α, β and γ within this host."""
        reductions, exchanges = (
            [timing for timing in timings if timing.ranks in self.fitted_counts]
            for timings in (self.found.reductions, self.found.exchanges)
        )
        return fit_network(reductions, exchanges, self.found.add_s_per_byte)

    @cached_property
    def model(self) -> StepModel:
        """Of a step: work fitted to the largest number of ranks that have a core each."""
        most = max(self.fitted_counts)
        return StepModel(fit_work(step for step in self.found.steps if step.ranks == most))

    def reduction_errors(self) -> dict[int, Errors]:
        """How far modelled all-reduces are from measured ones, by number of ranks."""
        return reduction_errors(self.network, self.found.reductions)

    def exchange_errors(self) -> dict[int, Errors]:
        """How far modelled all-to-alls are from measured ones, by number of ranks."""
        return exchange_errors(self.network, self.found.exchanges)

    def held_out_errors(self) -> dict[int, Errors]:
        """Errors on the most ranks of a model that was fitted to fewer; see ``held_out``."""
        fitted = self.fitted_counts
        timings = [timing for timing in self.found.reductions if timing.ranks in fitted]
        return dict(held_out(timings, self.found.add_s_per_byte))

    def step_errors(self) -> dict[tuple[int, int], Errors]:
        """How far modelled steps are from measured ones, by number of ranks and of bits."""
        return step_errors(self.model, self.found.steps, self.here)

    def here(self, ranks: int) -> Layout:
        """So many ranks on this host alone."""
        return Layout(1, ranks, self.network, self.network)

    def predict(
        self,
        layouts: Iterable[Layout],
        is_weak: bool = False,
        bits: int = PLAIN_BITS,
        is_hierarchical: bool = False,
    ) -> list[Prediction]:
        """What strong or weak scaling would be on other ranks."""
        found = []
        for layout in layouts:
            samples = float(self.minibatch_size) / (1 if is_weak else layout.ranks)
            step_s = self.model.step_s(samples, layout, bits, is_hierarchical)
            share = self.model.communication_s(layout, bits, is_hierarchical) / step_s
            found.append(Prediction(layout, bits, is_hierarchical, samples, step_s, share))
        return found


def layouts(
    inside: Network,
    between: Link,
    ranks_per_host: int,
    counts: Iterable[int],
    is_by_node: bool = False,
) -> Iterator[Layout]:
    """So many ranks, on hosts that are all alike.

    Args:
        inside: The network of a host, as fitted.
        between: The network between hosts, as its label says.
        ranks_per_host: Of each host; fewer ranks are on one.
        counts: Numbers of ranks, multiples of that or less.
        is_by_node: See ``Layout``.

    Raises:
        ValueError: A number of ranks would leave one host with fewer than the others.
    """
    network = Network.of_one_link(between, inside.add_s_per_byte)
    for ranks in counts:
        here = min(ranks, ranks_per_host)
        if ranks % here:
            raise ValueError(f"{ranks} ranks on hosts of {here} each: take a multiple of {here}")
        yield Layout(ranks // here, here, inside, network, is_by_node)
