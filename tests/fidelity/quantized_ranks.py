"""One rank of a recorded quantised training, run by test_quantized_ranks.py under mpiexec."""

import json
import sys
from pathlib import Path

import torch
from torch import nn

from tutorial_lib.distributed import session
from tutorial_lib.distributed.data_parallel import data_parallel
from tutorial_lib.learners.data_parallel import data_parallel_distributed_learner
from tutorial_lib.learners.schedules import learning_parameter_schedule_per_sample
from tutorial_lib.learners.sgd import sgd


class Recorded(nn.Module):
    """A loss whose gradient is whatever it is given."""

    def __init__(self, outputs: int, inputs: int, biases: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(outputs, inputs))
        self.bias = nn.Parameter(torch.zeros(biases))

    def forward(self, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return (self.weight * weight).sum() + (self.bias * bias).sum()


golden, bits = Path(sys.argv[1]), int(sys.argv[2])
with session.script() as ranks:
    file = golden / f"quant_b{bits}_n{ranks.world_size}_r{ranks.rank}.json"
    steps = json.loads(file.read_text())["steps"]
    inputs, outputs = torch.tensor(steps[0]["gp"]).shape
    model = Recorded(outputs, inputs, len(steps[0]["gb"]))
    local = sgd(model.parameters(), learning_parameter_schedule_per_sample(1.0))
    learner = data_parallel_distributed_learner(local, num_quantization_bits=bits)
    wrapped = data_parallel(model, learner.comm_hook)
    worst = 0.0
    for step in steps:
        for parameter in model.parameters():
            parameter.grad = None
        wrapped(torch.tensor(step["gp"]).t(), torch.tensor(step["gb"])).backward()
        assert learner.update(step["cnt"])
        worst = max(
            worst,
            (model.weight.detach().t() - torch.tensor(step["p"])).abs().max().item(),
            (model.bias.detach() - torch.tensor(step["b"])).abs().max().item(),
        )
    flat = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    same = all(torch.equal(flat, other) for other in learner._ranks.all_gather(flat))
    print(json.dumps({"worst": worst, "same": same, "bytes": learner.bytes_sent}))
