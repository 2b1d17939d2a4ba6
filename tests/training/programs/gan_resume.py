"""A GAN saved in the middle goes on as if nothing had been: argv: folder, kind of learner."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist

from tutorial_lib.distributed import session
from tutorial_lib.training.gan import BasicGan, GanConfig
from tutorial_lib.training.gan_checkpoint import restore_gan, save_gan
from tutorial_lib.training.gan_loop import GanResult

FOLDER, KIND = Path(sys.argv[1]), sys.argv[2]
OPTIONS = {
    "one bit": {"num_quantization_bits": 1},
    "block momentum": {"block_size": 60},
}


def weights(gan):
    networks = (gan.generator, gan.discriminator)
    return torch.cat([p.detach().flatten() for n in networks for p in n.parameters()])


with session.script(None) as ranks:
    config = GanConfig(minibatch_size=16, seed=3, **OPTIONS[KIND])
    gan = BasicGan(config, is_verbose=False)
    for _ in range(5):
        gan.step()
    save_gan(gan, FOLDER / "gan.ckpt", GanResult(gan.generator, gan.discriminator, []))
    uninterrupted = [record for _ in range(5) for record in gan.step()]
    again = BasicGan(config, is_verbose=False)
    restore_gan(again, FOLDER / "gan.ckpt")
    resumed = [record for _ in range(5) for record in again.step()]
    assert resumed == uninterrupted
    assert torch.equal(weights(again), weights(gan))
    dist.barrier()
    if ranks.is_main:
        print("all as expected")
