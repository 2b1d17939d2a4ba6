"""What an update and a quantised sum of gradients cost.

python benchmarks/learners.py              FSAdaGrad beside torch's Adam, on one thread
mpiexec -n 2 python benchmarks/learners.py ... and the discriminator's gradients in few bits

Targets: an FSAdaGrad update costs no more than torch's foreach Adam and at most twice its fused
one; the whole 1-bit aggregation at most 1.8 ms on 2 ranks.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch
import torch.distributed as dist
from measuring import Times, side_by_side
from torch import Tensor

from tutorial_lib.distributed import session
from tutorial_lib.learners.aggregation import QuantizedAggregation
from tutorial_lib.learners.fsadagrad import fsadagrad
from tutorial_lib.learners.quantization import LEGAL_BITS
from tutorial_lib.learners.schedules import (
    learning_parameter_schedule_per_sample,
    momentum_schedule_per_sample,
)
from tutorial_lib.learners.transport import current_transport

GENERATOR = [(128, 100), (128,), (784, 128), (784,)]
DISCRIMINATOR = [(128, 784), (128,), (1, 128), (1,)]
ROUNDS = 500
MINIBATCH_SIZE = 1024


def main() -> None:
    with session.script() as ranks:
        torch.set_num_threads(1)
        if ranks.is_main:
            for name, shapes in (("generator", GENERATOR), ("discriminator", DISCRIMINATOR)):
                print_table(f"update of the {name}", side_by_side(updates(shapes), ROUNDS))
        if ranks.world_size > 1:
            times = side_by_side(aggregations(), ROUNDS)
            if ranks.is_main:
                where = f"{ranks.world_size} ranks, {ranks.backend}"
                print_table(f"sum of the discriminator's gradients, {where}", times)


def updates(shapes: list[tuple[int, ...]]) -> dict[str, Callable[[], object]]:
    learner = fsadagrad(
        random_parameters(shapes),
        learning_parameter_schedule_per_sample(0.00005),
        momentum_schedule_per_sample(0.9985724484938566),
    )
    return {
        "FSAdaGrad": lambda: learner.update(MINIBATCH_SIZE),
        "Adam, fused": torch.optim.Adam(random_parameters(shapes), fused=True).step,
        "Adam, foreach": torch.optim.Adam(random_parameters(shapes), foreach=True).step,
    }


def aggregations() -> dict[str, Callable[[], object]]:
    parameters = random_parameters(DISCRIMINATOR)
    gradients = [torch.randn_like(parameter) for parameter in parameters]
    flat = torch.cat([gradient.flatten() for gradient in gradients])

    def sum_in_bits(bits: int) -> Callable[[], object]:
        aggregation = QuantizedAggregation(parameters, bits, current_transport())
        return lambda: aggregation.aggregate(gradients)

    alternatives: dict[str, Callable[[], object]] = {"32 bits": lambda: dist.all_reduce(flat)}
    alternatives |= {f"{bits} bits": sum_in_bits(bits) for bits in LEGAL_BITS}
    return {"barrier": dist.barrier, **alternatives}


def random_parameters(shapes: list[tuple[int, ...]]) -> list[Tensor]:
    parameters = [torch.randn(shape, requires_grad=True) for shape in shapes]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    return parameters


def print_table(title: str, times: Times) -> None:
    print(f"{title}: microseconds")
    print(f"{'':14} {'median':>9} {'fastest':>9}")
    for name, taken in times.items():
        print(f"{name:14} {statistics.median(taken) * 1e6:9.0f} {min(taken) * 1e6:9.0f}")


if __name__ == "__main__":
    main()
