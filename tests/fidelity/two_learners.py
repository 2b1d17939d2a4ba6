"""One rank of CNTK's recorded training with two learners, run by test_two_learners.py."""

import json

import numpy as np
import torch
from torch import Tensor, nn

from tutorial_lib.distributed import session
from tutorial_lib.distributed.data_parallel import data_parallel
from tutorial_lib.learners.data_parallel import data_parallel_distributed_learner
from tutorial_lib.learners.distributed_learner import gradient_hook
from tutorial_lib.learners.schedules import learning_parameter_schedule_per_sample
from tutorial_lib.learners.sgd import sgd


class Sums(nn.Module):
    """The recorded model: a * x + b * x, summed up."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.ones(3))
        self.b = nn.Parameter(torch.ones(3))

    def forward(self, data: Tensor) -> Tensor:
        return (data @ self.a).sum() + (data @ self.b).sum()


with session.script() as ranks:
    model, lr = Sums(), learning_parameter_schedule_per_sample(0.01)
    learners = [
        data_parallel_distributed_learner(sgd([parameter], lr)) for parameter in model.parameters()
    ]
    wrapped = data_parallel(model, gradient_hook(learners))
    stream = np.random.RandomState(ranks.rank)
    for _ in range(2):
        for parameter in model.parameters():
            parameter.grad = None
        loss = wrapped(torch.tensor(stream.randn(4, 3).astype(np.float32)))
        loss.backward()
        total = ranks.all_reduce_sum(loss.detach().clone())
        updated = [learner.update(4 * ranks.world_size) for learner in learners]
        seen = {learner.total_number_of_samples_seen for learner in learners}
        assert all(updated)
        assert len(seen) == 1
        print(json.dumps([total.item() / 8, *seen, [learner.bytes_sent for learner in learners]]))
