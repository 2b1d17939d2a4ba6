"""CNTK's recorded switch from training alone to training together, ranks played by threads."""

import numpy as np
import torch

from tutorial_lib.learners.data_parallel import data_parallel_distributed_learner
from tutorial_lib.learners.schedules import learning_parameter_schedule_per_sample
from tutorial_lib.learners.sgd import sgd
from tutorial_lib.learners.simulation import run_ranks

# (samples in the minibatch, samples seen, a[0]) of rank 0 in misc_2workers.txt
RECORDED = [
    (4, 4, 0.9463436603546143),
    (4, 8, 0.9257296919822693),
    (4, 12, 0.9231624603271484),
    (8, 20, 0.9529201984405518),
]


def test_the_switch_comes_with_the_count_before_the_update() -> None:
    def run(rank: int) -> list[tuple[int, int, float]]:
        stream = np.random.RandomState(rank)
        a = torch.ones(3, requires_grad=True)
        lr = learning_parameter_schedule_per_sample(0.01)
        learner = data_parallel_distributed_learner(sgd([a], lr), distributed_after=12)
        steps = []
        for _ in RECORDED:
            data = torch.tensor(stream.randn(4, 3).astype(np.float32))
            a.grad = data.sum(0)
            learner.reduce([a], [a.grad])
            samples = 8 if learner.is_synchronizing else 4
            learner.update(samples)
            steps.append((samples, learner.total_number_of_samples_seen, a[0].item()))
        return steps

    found, _ = run_ranks(2, run)
    for (samples, seen, value), recorded in zip(found, RECORDED, strict=True):
        assert (samples, seen) == recorded[:2]
        assert abs(value - recorded[2]) <= 1e-7
