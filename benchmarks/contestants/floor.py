"""Nothing but a step's matrix products, from operands that lie as the library likes them.

No training step can be faster that does these products with this library.
"""

import argparse

import torch
from common import DISCRIMINATOR_STEPS, MINIBATCH_SIZE, clock

from tutorial_lib.distributed import session
from tutorial_lib.models.matrix_product import LIBRARIES

parser = argparse.ArgumentParser()
parser.add_argument("--library", choices=LIBRARIES, default="onednn")
library = LIBRARIES[parser.parse_known_args()[0].library]


def product(x: torch.Tensor, weight: torch.Tensor) -> None:
    library.forward(x, weight, None, None)


with session.script() as ranks:
    n = MINIBATCH_SIZE // ranks.world_size
    noise, hidden, images = (torch.randn(n, size) for size in (100, 128, 784))
    pairs, pairs_gradient = torch.randn(2 * n, 784), torch.randn(128, 2 * n)
    hidden_gradient = torch.randn(128, n)
    g_hidden, g_output, d_hidden = (
        torch.randn(shape) for shape in ((128, 100), (784, 128), (128, 784))
    )

    def generate() -> None:
        product(noise, g_hidden)
        product(hidden, g_output)

    def step() -> None:
        for _ in range(DISCRIMINATOR_STEPS):
            generate()
            product(pairs, d_hidden)  # real and generated images
            product(pairs_gradient, pairs.t())  # gradient of the discriminator's first weight
        generate()
        product(images, d_hidden)
        product(hidden, d_hidden.t())  # back through the discriminator, which learns nothing
        product(images, g_output.t())
        product(hidden_gradient, images.t())  # gradients of the generator's two weights
        product(hidden_gradient, noise.t())

    clock(step, ranks.rank, ranks.barrier)
