"""How fast the GAN would train on ranks that aren't there: measured work, modelled messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache

from tutorial_lib.distributed.cost_fit import Errors, Line, errors, robust_line
from tutorial_lib.distributed.cost_on_hosts import (
    Layout,
    exchange_s,
    flat_all_reduce_s,
    hierarchical_all_reduce_s,
    within_host_s,
)
from tutorial_lib.learners.quantization import PLAIN_BITS
from tutorial_lib.learners.quantizing_time import (
    Shape,
    gradient_bytes,
    quantizing_s,
    striped_shapes,
)
from tutorial_lib.models.gan import Discriminator, Generator
from tutorial_lib.training.gan import DISCRIMINATOR_STEPS
from tutorial_lib.training.step_time import StepTime

Quantizing = Callable[[tuple[Shape, ...], int, int], float]


def gan_updates() -> tuple[tuple[Shape, ...], ...]:
    """The shapes of the gradients that each update of a step sums: twice D's, then G's."""
    d, g = (
        tuple(tuple(parameter.shape) for parameter in network.parameters())
        for network in (Discriminator(seed=1), Generator(seed=1))
    )
    return (*[d] * DISCRIMINATOR_STEPS, g)


@cache
def measured_quantizing_s(shapes: tuple[Shape, ...], bits: int, ranks: int) -> float:
    """What ``quantizing_s`` measures here, once for each question."""
    return quantizing_s(shapes, bits, ranks, repeats=3 if ranks > 64 else 7)


@dataclass(frozen=True)
class StepModel:
    """A step is work on the rank's own samples, and for each update a sum over the ranks.

    Work and gradients follow one another: in networks as small as these there is little to do
    while a gradient travels. The sums of losses and counts, 16 bytes, travel beside the gradients
    and cost nothing here. Nobody waits for a rank that is late.

    Attributes:
        work: Seconds of a step beside its messages: a fixed part, and one per sample of the rank.
        updates: Of a step, each the shapes of the gradients that it sums.
        quantizing: What few bits cost besides messages, for shapes, bits and a number of ranks, in
            seconds.
    """

    work: Line
    updates: tuple[tuple[Shape, ...], ...] = field(default_factory=gan_updates)
    quantizing: Quantizing = measured_quantizing_s

    def step_s(
        self,
        samples_per_rank: float,
        layout: Layout,
        bits: int = PLAIN_BITS,
        is_hierarchical: bool = False,
    ) -> float:
        """How long a step takes, in seconds.

        Args:
            samples_per_rank: Of a step.
            layout: Where the ranks live.
            bits: In which an element of a gradient travels, between hosts at least.
            is_hierarchical: Whether the ranks of a host sum among themselves first. They do so in
                float32, and only what leaves the host travels in few bits.
        """
        work_s = self.work.fixed + self.work.slope * samples_per_rank
        return work_s + self.communication_s(layout, bits, is_hierarchical)

    def communication_s(
        self, layout: Layout, bits: int = PLAIN_BITS, is_hierarchical: bool = False
    ) -> float:
        """What a step's messages cost, with the work of quantising, in seconds."""
        if layout.ranks == 1:
            return 0.0
        # The same shapes come more than once in a step.
        return sum(
            self.updates.count(shapes) * self._gradients_s(shapes, layout, bits, is_hierarchical)
            for shapes in dict.fromkeys(self.updates)
        )

    def _gradients_s(
        self, shapes: tuple[Shape, ...], layout: Layout, bits: int, is_hierarchical: bool
    ) -> float:
        plain = gradient_bytes(shapes, PLAIN_BITS)
        if bits >= PLAIN_BITS:
            all_reduce_s = hierarchical_all_reduce_s if is_hierarchical else flat_all_reduce_s
            return all_reduce_s(plain, layout)
        packed = gradient_bytes(shapes, bits)
        if not is_hierarchical:
            return exchange_s(packed, layout) + self.quantizing(shapes, bits, layout.ranks)
        stripes = tuple(striped_shapes(shapes, layout.ranks_per_host))
        quantizing_s = self.quantizing(stripes, bits, layout.hosts) if layout.hosts > 1 else 0.0
        return within_host_s(plain, layout) + exchange_s(packed, layout, True) + quantizing_s

    def samples_per_s(
        self,
        samples_per_rank: float,
        layout: Layout,
        bits: int = PLAIN_BITS,
        is_hierarchical: bool = False,
    ) -> float:
        """Samples of all ranks in a second; see ``step_s``."""
        step_s = self.step_s(samples_per_rank, layout, bits, is_hierarchical)
        return layout.ranks * samples_per_rank / step_s


def fit_work(times: Iterable[StepTime]) -> Line:
    """Find the fixed and the per-sample part of a rank's work from steps of several sizes.

    Args:
        times: Of steps in float32, with at least two different numbers of samples per rank.

    Raises:
        ValueError: There are fewer than two: time more sizes.
    """
    plain = [found for found in times if found.bits >= PLAIN_BITS]
    samples = [found.minibatch_size / found.ranks for found in plain]
    return robust_line([1.0] * len(plain), samples, [found.compute_s for found in plain])


def step_errors(
    model: StepModel, times: Sequence[StepTime], layout_of: Callable[[int], Layout]
) -> dict[tuple[int, int], Errors]:
    """How far the model's steps are from measured ones, by number of ranks and of bits.

    Args:
        model: Fitted.
        times: Measured.
        layout_of: Where so many ranks lived.
    """
    pairs: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for found in times:
        samples, layout = found.minibatch_size / found.ranks, layout_of(found.ranks)
        modelled_s = model.step_s(samples, layout, found.bits)
        pairs.setdefault((found.ranks, found.bits), []).append((modelled_s, found.seconds))
    return {key: errors(compared) for key, compared in sorted(pairs.items())}
