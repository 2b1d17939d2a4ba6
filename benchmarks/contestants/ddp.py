"""torchrun, DistributedDataParallel on gloo, DistributedSampler: PyTorch's DDP tutorial."""

import torch
import torch.distributed as dist
from common import (
    LEARNING_RATE,
    MINIBATCH_SIZE,
    clock,
    dataset,
    discriminator,
    endless,
    generator,
    train,
)
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

dist.init_process_group("gloo")
g, d = DistributedDataParallel(generator()), DistributedDataParallel(discriminator())
images = dataset()
loader = DataLoader(
    images,
    batch_size=MINIBATCH_SIZE // dist.get_world_size(),
    shuffle=False,
    sampler=DistributedSampler(images),
    drop_last=True,
)
step = train(
    g,
    d,
    torch.optim.Adam(g.parameters(), lr=LEARNING_RATE),
    torch.optim.Adam(d.parameters(), lr=LEARNING_RATE),
    endless(loader),
)
clock(step, dist.get_rank(), dist.barrier)
dist.destroy_process_group()
