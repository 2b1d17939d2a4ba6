"""The DCGAN's networks: sizes, padding, and batch normalisation as CNTK has it."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tutorial_lib.models.classifiers import count_parameters
from tutorial_lib.models.dcgan import BatchNorm, Discriminator, Generator, scale_to_unit


def noise(n: int) -> torch.Tensor:
    return torch.rand(n, 100, generator=torch.Generator().manual_seed(5)) * 2 - 1


def sizes(network: nn.Module, *args: object) -> dict[str, tuple[int, ...]]:
    """What each layer gives for each sample."""
    found = {}
    for name, layer in network.named_children():
        layer.register_forward_hook(
            lambda _, __, output, name=name: found.update({name: tuple(output.shape[1:])})
        )
    network(*args)
    return found


def test_the_generator_has_cntks_sizes():
    generator = Generator()
    assert sizes(generator, noise(3)) == {
        "hidden": (1024,),
        "hidden_norm": (1024,),
        "small": (128 * 7 * 7,),
        "small_norm": (128, 7, 7),
        "middle": (128, 14, 14),
        "middle_norm": (128, 14, 14),
        "output": (1, 28, 28),
    }
    images = generator(noise(3))
    assert images.shape == (3, 784)
    assert 0 < images.min() < images.max() < 1
    assert count_parameters(generator) == 6_947_713


def test_the_discriminator_has_cntks_sizes():
    discriminator = Discriminator()
    assert sizes(discriminator, torch.rand(3, 784)) == {
        "first": (1, 12, 12),
        "first_norm": (1, 12, 12),
        "second": (64, 4, 4),
        "second_norm": (64, 4, 4),
        "hidden": (1024,),
        "hidden_norm": (1024,),
        "output": (1,),
    }
    assert discriminator(torch.rand(3, 784)).shape == (3, 1)
    assert count_parameters(discriminator) == 1_054_493


@pytest.mark.parametrize("name", ["middle", "output"])
def test_a_transposed_convolution_is_the_way_back_of_a_padded_one(name):
    """Two pixels before the picture and one after it, which is CNTK's automatic padding."""
    layer = getattr(Generator(), name).double()
    nn.init.normal_(layer.weight)
    side, channels = (7, 128) if name == "middle" else (14, 1)
    small = torch.randn(2, 128, side, side).double()
    large = torch.randn(2, channels, 2 * side, 2 * side).double()
    there = F.conv2d(F.pad(large, (2, 1, 2, 1)), layer.weight, stride=2)
    assert torch.allclose((layer(small) * large).sum(), (small * there).sum())


def test_the_last_layer_is_a_transposed_convolution_bias_and_gradients_included():
    layer = Generator().output
    nn.init.normal_(layer.weight)
    nn.init.constant_(layer.bias, 0.5)
    x = torch.randn(3, 128, 14, 14, requires_grad=True)
    expected = F.conv_transpose2d(x, layer.weight, layer.bias, 2, 2, 1)
    inputs = [x, layer.weight, layer.bias]
    wanted = torch.autograd.grad(expected.square().sum(), inputs)
    found = torch.autograd.grad(layer(x).square().sum(), inputs)
    torch.testing.assert_close(layer(x), expected, rtol=1e-4, atol=1e-4)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3 * float(other.abs().max()))


def test_running_statistics_follow_the_number_of_samples():
    norm = BatchNorm(1)
    mean = var = 0.0
    for number, n in enumerate((64, 64, 32, 128)):
        x = torch.randn(n, 1, 4, 4, generator=torch.Generator().manual_seed(n)) + number
        norm(x)
        factor = 1.0 if number == 0 else 1 - math.exp(-n / 5000)
        mean += factor * (float(x.mean()) - mean)
        var += factor * (float(x.var(correction=1)) - var)
        assert norm.running_mean.item() == pytest.approx(mean, rel=1e-4)
        assert norm.running_var.item() == pytest.approx(var, rel=1e-4)
    assert norm.samples_seen.item() == 288


def test_training_normalises_by_the_minibatch_and_drawing_by_what_was_seen():
    norm = BatchNorm(3)
    x = torch.randn(64, 3) * 5 + 2
    deviations = x.var(dim=0, correction=0).add(1e-5).sqrt()
    torch.testing.assert_close(norm(x), (x - x.mean(dim=0)) / deviations, rtol=1e-4, atol=1e-4)
    norm.eval()
    before = norm.running_mean.clone()
    torch.testing.assert_close(norm(x[:1])[0], (x[0] - norm.running_mean) / norm.running_var.sqrt())
    assert torch.equal(norm.running_mean, before)


def test_two_batches_in_one_call_are_as_two_calls():
    one, two = Discriminator(), Discriminator()
    real, fake = torch.rand(8, 784), torch.rand(8, 784).square()
    together = one(torch.cat([real, fake]), batches=2)
    apart = torch.cat([two(real), two(fake)])
    torch.testing.assert_close(together, apart)
    for a, b in zip(one.buffers(), two.buffers(), strict=True):
        torch.testing.assert_close(a, b)
    assert not torch.allclose(together, Discriminator()(torch.cat([real, fake])), atol=1e-4)


@pytest.mark.parametrize("kind", [Generator, Discriminator])
def test_a_seed_names_the_weights_and_they_are_normal(kind):
    def weights(seed: int) -> torch.Tensor:
        network = kind(seed)
        layers = [layer for layer in network.children() if not isinstance(layer, BatchNorm)]
        assert all(not layer.bias.any() for layer in layers)
        return torch.cat([layer.weight.flatten() for layer in layers]).detach()

    assert torch.equal(weights(3), weights(3))
    assert not torch.equal(weights(3), weights(4))
    assert weights(3).std().item() == pytest.approx(0.02, rel=0.01)
    assert weights(3).abs().max() > 0.06  # not uniform, not cut off


def test_pixels_come_to_a_sigmoids_range():
    pixels = torch.tensor([[0, 51, 255]], dtype=torch.uint8)
    assert torch.equal(scale_to_unit(pixels), torch.tensor([[0, 0.2, 1]]))
