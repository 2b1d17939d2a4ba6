"""Hugging Face Accelerate: prepare everything, accelerator.backward."""

import torch
from accelerate import Accelerator
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

accelerator = Accelerator(cpu=True)
g, d = generator(), discriminator()
loader = DataLoader(
    dataset(),
    batch_size=MINIBATCH_SIZE // accelerator.num_processes,
    shuffle=True,
    drop_last=True,
)
g, d, g_optimizer, d_optimizer, loader = accelerator.prepare(
    g,
    d,
    torch.optim.Adam(g.parameters(), lr=LEARNING_RATE),
    torch.optim.Adam(d.parameters(), lr=LEARNING_RATE),
    loader,
)
step = train(g, d, g_optimizer, d_optimizer, endless(loader), accelerator.backward)
clock(step, accelerator.process_index, accelerator.wait_for_everyone)
accelerator.end_training()
