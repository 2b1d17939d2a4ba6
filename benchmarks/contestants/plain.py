"""Plain PyTorch: nn.Linear, DataLoader, Adam; one process."""

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
from torch.utils.data import DataLoader

g, d = generator(), discriminator()
loader = DataLoader(dataset(), batch_size=MINIBATCH_SIZE, shuffle=True, drop_last=True)
step = train(
    g,
    d,
    torch.optim.Adam(g.parameters(), lr=LEARNING_RATE),
    torch.optim.Adam(d.parameters(), lr=LEARNING_RATE),
    endless(loader),
)
clock(step, 0, lambda: None)
