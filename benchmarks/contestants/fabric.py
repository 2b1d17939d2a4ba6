"""Lightning Fabric: setup, setup_dataloaders, fabric.backward; it starts its own processes."""

import argparse

import torch
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
from lightning.fabric import Fabric
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--devices", type=int, default=2)
devices = parser.parse_known_args()[0].devices
fabric = Fabric(accelerator="cpu", devices=devices, strategy="ddp" if devices > 1 else "auto")
fabric.launch()
g, d = generator(), discriminator()
g, g_optimizer = fabric.setup(g, torch.optim.Adam(g.parameters(), lr=LEARNING_RATE))
d, d_optimizer = fabric.setup(d, torch.optim.Adam(d.parameters(), lr=LEARNING_RATE))
loader = fabric.setup_dataloaders(
    DataLoader(
        dataset(), batch_size=MINIBATCH_SIZE // fabric.world_size, shuffle=True, drop_last=True
    )
)
step = train(g, d, g_optimizer, d_optimizer, endless(loader), fabric.backward)
clock(step, fabric.global_rank, fabric.barrier)
