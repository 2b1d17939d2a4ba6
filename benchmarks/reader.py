"""How fast minibatches are drawn on one core.

Target: 1.5 million MNIST images a second.

python benchmarks/reader.py
"""

from __future__ import annotations

import time

import torch
from measuring import print_rates, side_by_side
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

from tutorial_lib.data.datasets import mnist
from tutorial_lib.data.minibatch_source import MinibatchSource

MINIBATCH_SIZE = 1024


def main() -> None:
    torch.set_num_threads(1)
    split = mnist().train
    source = MinibatchSource(split)
    dataset = TensorDataset(split.features, split.labels)
    steps = len(split) // MINIBATCH_SIZE
    per_sample = DataLoader(dataset, batch_size=MINIBATCH_SIZE, shuffle=True, drop_last=True)
    batches = BatchSampler(RandomSampler(dataset), MINIBATCH_SIZE, drop_last=True)
    by_batch = DataLoader(dataset, sampler=batches, batch_size=None)

    def draw_from_source() -> None:
        for _ in range(steps):
            source.next_minibatch(MINIBATCH_SIZE)

    def draw_quarter_from_source() -> None:
        for _ in range(4 * steps):
            source.next_minibatch(MINIBATCH_SIZE, num_data_partitions=4, partition_index=3)

    def exhaust(loader: DataLoader[tuple[torch.Tensor, ...]]) -> None:
        for _ in loader:
            pass

    alternatives = {
        "MinibatchSource": draw_from_source,
        "MinibatchSource, 1 rank of 4": draw_quarter_from_source,
        "DataLoader, by minibatch": lambda: exhaust(by_batch),
        "DataLoader, by sample": lambda: exhaust(per_sample),
    }
    print(f"images of 784 bytes in minibatches of {MINIBATCH_SIZE}, per second of one core")
    times = side_by_side(alternatives, clock=time.process_time)
    print_rates(times, steps * MINIBATCH_SIZE / 1e6, "M images")


if __name__ == "__main__":
    main()
