"""Two ranks and batch normalisation: which sums are equal, and which statistics are not."""

import copy

import torch
import torch.distributed as dist

from tutorial_lib.distributed import session
from tutorial_lib.distributed.data_parallel import data_parallel
from tutorial_lib.training.dcgan import Dcgan, DcganConfig


def everyones(tensors):
    own = torch.cat([tensor.detach().flatten().float() for tensor in tensors])
    gathered = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, own)
    return gathered


with session.script(None) as ranks:
    gan = Dcgan(DcganConfig(minibatch_size=16), is_verbose=False)
    pixels, noise = gan.next_images().features, gan.next_noise()
    alone = copy.deepcopy(gan.discriminator)
    gan.d_criterion(alone, pixels, noise).sum().backward()
    local = torch.cat([p.grad.flatten() for p in alone.parameters()])
    dist.all_reduce(local)
    together = copy.deepcopy(gan.discriminator)
    wrapper = data_parallel(together)
    gan.d_criterion(wrapper, pixels, noise).sum().backward()
    summed = torch.cat([p.grad.flatten() for p in together.parameters()])
    torch.testing.assert_close(summed, local, rtol=1e-4, atol=1e-5)

    for _ in range(2):
        gan.step()
    for network in (gan.generator, gan.discriminator):
        first, second = everyones(network.parameters())
        assert torch.equal(first, second), "weights are equal to the last bit"
        first, second = everyones(network.buffers())
        assert not torch.equal(first, second), "running statistics are each rank's own"
    if ranks.is_main:
        print("all as expected")
