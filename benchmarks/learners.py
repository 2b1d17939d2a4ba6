"""What an update and a quantised sum of gradients cost.

python benchmarks/learners.py

FSAdaGrad beside torch's Adam, on one thread, and the discriminator's gradients in few bits, on 2
ranks.

Targets: an FSAdaGrad update costs no more than torch's foreach Adam and at most twice its fused
one; the whole 1-bit aggregation at most 1.8 ms on 2 ranks.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from measuring import print_times, side_by_side
from measuring.ranks import run_under_mpiexec
from torch import Tensor

from tutorial_lib.distributed import session, topology
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
    if topology.launcher() == "mpi":
        with session.script() as ranks:
            times = side_by_side(aggregations(), ROUNDS)
            if ranks.is_main:
                print(f"## Sum of the discriminator's gradients on {ranks.world_size} ranks")
                print_times(times)
        return
    torch.set_num_threads(1)
    for name, shapes in (("generator", GENERATOR), ("discriminator", DISCRIMINATOR)):
        print(f"## Update of the {name}")
        print_times(side_by_side(updates(shapes), ROUNDS))
    run_under_mpiexec(__file__, 2)


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


if __name__ == "__main__":
    main()
