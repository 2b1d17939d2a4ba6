import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tutorial_lib.models.classifiers import (
    CifarCnn,
    MnistMlp,
    SoftmaxClassifier,
    classification_losses,
    correct,
    count_parameters,
)


@pytest.mark.parametrize(
    ("model", "expected"),
    [(MnistMlp, 1_276_810), (CifarCnn, 1_068_426), (SoftmaxClassifier, 7_850)],
)
def test_number_of_parameters(model, expected):
    assert count_parameters(model()) == expected


@pytest.mark.parametrize(
    ("model", "shape"), [(MnistMlp, (5, 28, 28)), (MnistMlp, (5, 784)), (CifarCnn, (5, 3, 24, 24))]
)
def test_images_become_ten_logits(model, shape):
    assert model()(torch.randn(shape)).shape == (5, 10)


def test_max_pooling_pads_right_and_below_as_tensorflow_does():
    x = torch.randn(2, 64, 12, 12)
    pool = next(layer for layer in CifarCnn().modules() if isinstance(layer, nn.MaxPool2d))
    padded = F.pad(x, (0, 1, 0, 1), value=float("-inf"))
    assert torch.equal(pool(x), F.max_pool2d(padded, 3, 2))


@pytest.mark.parametrize("model", [MnistMlp, CifarCnn])
def test_tensorlayers_weights_are_cut_off_at_two_deviations(model):
    for layer in model("tensorlayer").modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            deviation = 0.1 if isinstance(layer, nn.Linear) else 0.02
            assert layer.weight.abs().max() <= 2 * deviation
            # A normal distribution without its tails beyond 2 deviates by 0.88.
            assert layer.weight.std().item() == pytest.approx(0.88 * deviation, rel=0.1)
            assert layer.bias is None or not layer.bias.any()


@pytest.mark.parametrize("initialization", ["tensorlayer", "pytorch"])
@pytest.mark.parametrize("model", [MnistMlp, CifarCnn])
def test_seeds_name_the_weights_and_leave_the_global_stream_alone(model, initialization):
    torch.manual_seed(3)
    before = torch.get_rng_state()
    one, same, other = (model(initialization, seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    for a, b, c in zip(one.parameters(), same.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)
        assert not torch.equal(a, c) or a.unique().numel() == 1


def test_batch_normalisation_decays_by_99_per_cent():
    assert {m.momentum for m in CifarCnn().modules() if isinstance(m, nn.BatchNorm2d)} == {0.01}


def test_the_penalty_is_half_the_squares_of_the_two_hidden_layers():
    model = CifarCnn()
    hidden = [m.weight for m in model.modules() if isinstance(m, nn.Linear)][:2]
    expected = sum(weight.square().sum() for weight in hidden) / 2
    torch.testing.assert_close(model.weight_penalty(), expected)


def test_a_softmax_classifier_starts_with_equal_chances():
    x, y = torch.randn(4, 784), torch.tensor([1, 5, 9, 0])
    logits = SoftmaxClassifier()(x)
    torch.testing.assert_close(classification_losses(logits, y), torch.full((4,), 10.0).log())


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ],
)
def test_losses_have_the_precision_of_the_logits_but_float32_at_least(dtype, expected):
    assert (
        classification_losses(torch.zeros(2, 10, dtype=dtype), torch.zeros(2).long()).dtype
        is expected
    )


def test_correct_tells_for_each_sample():
    logits = torch.eye(3)
    assert correct(logits, torch.tensor([0, 2, 2])).tolist() == [1, 0, 1]


def test_another_initialisation_is_refused():
    with pytest.raises(ValueError, match="'tensorlayer' or 'pytorch'"):
        MnistMlp("xavier")
