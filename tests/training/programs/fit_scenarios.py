"""Trains small networks in float64 in every way that the high-level trainer offers.

python fit_scenarios.py FILE: rank 0 writes a JSON file: for each scenario what all ranks agree on.
"""

import hashlib
import json
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from tutorial_lib.data.augment import augment
from tutorial_lib.distributed import session
from tutorial_lib.training import callbacks
from tutorial_lib.training.callbacks import Callback, EarlyStopping, StopAfterSeconds, WeightAverage
from tutorial_lib.training.fit import Trainer

GLOBAL_BATCH = 12


def samples(n):
    stream = torch.Generator().manual_seed(n)
    x = torch.randn(n, 6, generator=stream, dtype=torch.float64)
    return x, (x[:, :3].argmax(dim=1) + torch.randint(2, (n,), generator=stream)) % 3


def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).double()


def per_sample(net, x, y):
    logits = net(x)
    return F.cross_entropy(logits, y, reduction="none"), {"right": (logits.argmax(1) == y).double()}


def means(net, x, y):
    logits = net(x)
    return F.cross_entropy(logits, y), {"right": (logits.argmax(1) == y).double().mean()}


def measure(net, x, y):
    loss, logs = means(net, x, y)
    return {"loss": loss, **logs}


class Steps(Callback):
    """Remembers what each step logged."""

    def __init__(self):
        self.logs = []

    def on_step(self, trainer):
        self.logs.append(dict(trainer.logs))


def run(ranks, data, func=per_sample, net=None, accumulation=1, more=(), **options):
    """Train with the same global minibatch on any number of ranks; return what came of it."""
    steps = Steps()
    arguments = {"lr": 0.01}
    trainer = Trainer(
        net or network(),
        data,
        func,
        options.pop("optimizer", torch.optim.Adam),
        arguments,
        batch_size=GLOBAL_BATCH // accumulation // ranks.world_size,
        scaling_learning_rate=False,
        log_step_size=0,
        validation_dataset=samples(31),
        build_validation_func=options.pop("measure", measure),
        accumulation=accumulation,
        callbacks=[steps, *more],
        **{"epochs": 2, **options},
    )
    trainer.train_and_validate_to_end(3)
    assert arguments == {"lr": 0.01}
    weights = [p.detach().flatten().tolist() for p in trainer.training_network.parameters()]
    found = {
        "weights": [w for part in weights for w in part],
        "logs": steps.logs,
        "steps": trainer.global_step,
        "validation": trainer.validation_metrics,
    }
    return trainer, found


def averaged(ranks):
    average = WeightAverage(0.9)
    trainer, found = run(ranks, samples(60), more=[average])
    with average.applied(trainer):
        found["averaged"] = trainer.validation_metrics
    assert trainer.validation_metrics == found["validation"]
    found["weights"] += [w for value in average.weights.values() for w in value.flatten().tolist()]
    return found


def augmented(ranks):
    stream = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (40, 3, 8, 8), dtype=torch.uint8, generator=stream)
    seen = []

    def change(x, random):
        seen.append(len(x))
        return augment(x, random, crop=6).double()

    torch.manual_seed(1)
    net = nn.Sequential(nn.Flatten(), nn.Linear(108, 3)).double()
    data = images, torch.arange(40) % 3
    options = {"batch_map": change, "prefetch_size": 2, "measure": wide}
    _, found = run(ranks, data, net=net, **options)
    share = 80 // ranks.world_size
    assert sum(seen) <= share + 2 * (GLOBAL_BATCH // ranks.world_size + 1), "only its own part"
    return found


def wide(net, x, y):
    return measure(net, x.repeat(1, 18), y)


def stopped_by_rank_0(ranks):
    """Rank 0's clock runs; the others' stand still."""
    hurry = 1 if ranks.is_main else 0
    clock = iter(range(10_000))
    callbacks.time = type("Clock", (), {"monotonic": staticmethod(lambda: next(clock) * hurry)})
    try:
        trainer, found = run(ranks, samples(60), more=[StopAfterSeconds(4)], epochs=100)
    finally:
        callbacks.time = time
    return {"steps": trainer.global_step, "validation": found["validation"]}


def asked_by_the_last_rank(ranks):
    class Ask(Callback):
        def on_step(self, trainer):
            if trainer.global_step == 5 and ranks.rank == ranks.world_size - 1:
                trainer.request_stop()

    return run(ranks, samples(60), more=[Ask()], epochs=100)[1]


def stopped_early(ranks):
    stopping = EarlyStopping("right", patience=1, mode="max")
    return run(ranks, samples(60), more=[stopping], epochs=30)[1]


SCENARIOS = {
    "plain": lambda ranks: run(ranks, samples(60))[1],
    "uneven": lambda ranks: run(ranks, samples(23))[1],
    "a last minibatch of one": lambda ranks: run(ranks, samples(25))[1],
    "fewer samples than ranks": lambda ranks: run(ranks, samples(3), epochs=5)[1],
    "means of minibatches": lambda ranks: run(ranks, samples(23), func=means)[1],
    "prefetch": lambda ranks: run(ranks, samples(23), prefetch_size=3)[1],
    "accumulation": lambda ranks: run(ranks, samples(23), accumulation=3)[1],
    "clipping": lambda ranks: run(
        ranks, samples(60), max_gradient_norm=0.05, optimizer=torch.optim.SGD
    )[1],
    "compiled": lambda ranks: run(ranks, samples(60), compile="aot_eager")[1],
    "budget": lambda ranks: run(
        ranks, samples(60), epochs=None, max_iteration=7 * ranks.world_size
    )[1],
    "bf16": lambda ranks: run(
        ranks, samples(60), net=network().float(), func=in_float32, autocast=torch.bfloat16,
        measure=lambda net, x, y: measure(net, x.float(), y),
    )[1],
    "averaged": averaged,
    "augmented": augmented,
    "stopped by rank 0": stopped_by_rank_0,
    "asked by the last rank": asked_by_the_last_rank,
    "stopped early": stopped_early,
}  # fmt: skip


def in_float32(net, x, y):
    return per_sample(net, x.float(), y)


def main(path):
    with session.script() as ranks:
        results = {name: scenario(ranks) for name, scenario in SCENARIOS.items()}
        digest = hashlib.sha256(json.dumps(results).encode()).hexdigest()
        digests = [digest] * ranks.world_size
        if ranks.world_size > 1:
            dist.all_gather_object(digests, digest)
        assert set(digests) == {digest}, "every figure is equal on all ranks"
        if ranks.is_main:
            with open(path, "w") as file:
                json.dump(results, file)


main(sys.argv[1])
