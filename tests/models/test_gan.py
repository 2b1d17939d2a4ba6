import pytest
import torch

from tutorial_lib.models.gan import Discriminator, Generator, scale_pixels

NETWORKS = [(Generator, 114_064), (Discriminator, 100_609)]


@pytest.mark.parametrize(("network", "count"), NETWORKS)
def test_network_has_the_published_number_of_parameters(network, count):
    assert sum(p.numel() for p in network().parameters()) == count


def test_outputs_have_the_promised_shapes_and_ranges():
    noise = torch.rand(7, 100) * 2 - 1
    images = Generator()(noise)
    assert images.shape == (7, 784)
    assert images.abs().max() <= 1
    probabilities = Discriminator()(images)
    assert probabilities.shape == (7, 1)
    assert 0 < probabilities.min() <= probabilities.max() < 1


@pytest.mark.parametrize(("network", "count"), NETWORKS)
def test_weights_come_from_the_seed_alone(network, count):
    torch.manual_seed(0)
    first = network(seed=5).state_dict()
    torch.manual_seed(1)
    again = network(seed=5).state_dict()
    other = network(seed=6).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["hidden.weight"], other["hidden.weight"])


@pytest.mark.parametrize(("network", "count"), NETWORKS)
def test_weights_fill_cntks_xavier_range_and_biases_are_zero(network, count):
    for layer in network().children():
        bound = (3 / layer.in_features) ** 0.5
        largest = layer.weight.abs().max().item()
        assert 0.95 * bound < largest <= bound
        assert not layer.bias.any()


def test_no_weight_matrix_repeats_another():
    """CNTK starts its random stream afresh for each tensor, so its matrices are prefixes."""
    scaled = [
        (layer.weight / layer.weight.abs().max()).flatten()[:100]
        for network in (Generator(1), Discriminator(2))
        for layer in network.children()
    ]
    for i, first in enumerate(scaled):
        for second in scaled[i + 1 :]:
            assert (first - second).abs().max() > 0.1


def test_pixels_span_the_range_of_tanh():
    pixels = torch.tensor([[0, 51, 255]], dtype=torch.uint8)
    assert torch.allclose(scale_pixels(pixels), torch.tensor([[-1.0, -0.6, 1.0]]))
    assert scale_pixels(pixels, torch.float64).dtype == torch.float64
    assert pixels.tolist() == [[0, 51, 255]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_pixels_are_scaled_to_the_bit_as_in_cntk(dtype):
    pixels = torch.arange(256, dtype=torch.uint8)
    expected = 2 * (pixels.to(dtype) / 255) - 1
    memory = torch.empty(512, dtype=dtype)[::2]
    assert torch.equal(scale_pixels(pixels, dtype), expected)
    assert torch.equal(scale_pixels(pixels, out=memory), expected)
    assert torch.equal(memory, expected)
    floats = pixels.to(dtype)
    scale_pixels(floats, dtype)
    assert torch.equal(floats, pixels.to(dtype)), "the argument stays as it is"
