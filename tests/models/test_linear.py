"""The layer computes what nn.Linear does, whichever library multiplies."""

from __future__ import annotations

import copy
import subprocess
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, jvp, vmap

from tutorial_lib.models import matrix_product as products
from tutorial_lib.models.linear import Linear
from tutorial_lib.models.matrix_product import ACTIVATIONS, Chooser, OneDnn, matrix_product

Launch = Callable[..., subprocess.CompletedProcess[str]]
SHAPES = [(1024, 784, 128), (512, 128, 784), (1000, 100, 128), (700, 128, 13)]


@pytest.fixture(autouse=True)
def fresh_choice() -> Iterator[None]:
    state = products.matrix_product_state()
    products.chooser.choices.clear()
    yield
    products.load_matrix_product_state(state)


@pytest.fixture
def without_onednn(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def missing(*args: object) -> torch.Tensor:
        raise AttributeError("'_OpNamespace' 'mkldnn' object has no attribute '_linear_pointwise'")

    products.has_onednn.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(products, "_onednn_linear", missing)
        yield
    products.has_onednn.cache_clear()


def values_and_gradients(layer: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    x = x.detach().requires_grad_()
    y = layer(x)
    weights = torch.rand(y.shape, generator=torch.Generator().manual_seed(0)).to(y.dtype)
    return [y.detach(), *torch.autograd.grad((y * weights).sum(), [x, *layer.parameters()])]


def relative_error(found: torch.Tensor, exact: torch.Tensor) -> float:
    return float((found.double() - exact).abs().max() / exact.abs().max())


@pytest.mark.parametrize("activation", [None, *ACTIVATIONS])
@pytest.mark.parametrize("library", products.NAMES)
@pytest.mark.parametrize("shape", SHAPES)
def test_values_and_gradients_are_exact_to_float32(
    shape: tuple[int, int, int], library: str, activation: str | None
) -> None:
    rows, inputs, outputs = shape
    torch.manual_seed(0)
    layer = Linear(inputs, outputs, activation=activation)
    x = torch.randn(rows, inputs)
    with matrix_product("mkl"):
        exact = values_and_gradients(copy.deepcopy(layer).double(), x.double())
    with matrix_product(library):
        found = values_and_gradients(layer, x)
    for part, exact_part in zip(found, exact, strict=True):
        assert part.shape == exact_part.shape
        assert part.is_contiguous()
        assert relative_error(part, exact_part) <= 2e-5


def test_mkl_is_nn_linear_to_the_bit() -> None:
    torch.manual_seed(0)
    layer, plain = Linear(784, 128), nn.Linear(784, 128)
    plain.load_state_dict(layer.state_dict())
    x = torch.randn(512, 784)
    with matrix_product("mkl"):
        found = values_and_gradients(layer, x)
    assert all(map(torch.equal, found, values_and_gradients(plain, x)))


def test_state_dict_goes_both_ways() -> None:
    layer, plain = Linear(5, 3, activation="tanh"), nn.Linear(5, 3)
    plain.load_state_dict(layer.state_dict())
    layer.load_state_dict(plain.state_dict())
    assert list(layer.state_dict()) == ["weight", "bias"]
    assert isinstance(layer, nn.Linear)
    assert "activation=tanh" in repr(layer)
    assert list(Linear(5, 3, bias=False).state_dict()) == ["weight"]


def test_no_other_activation() -> None:
    with pytest.raises(ValueError, match=r"gelu.*relu, tanh, sigmoid"):
        Linear(5, 3, activation="gelu")


@pytest.mark.parametrize("library", products.NAMES)
def test_any_layout_and_number_of_dimensions(library: str) -> None:
    torch.manual_seed(0)
    layer = Linear(784, 128, activation="relu")
    block = torch.randn(4, 784, 300)
    for x in (
        block.transpose(1, 2),  # (4, 300, 784), columns first
        torch.randn(600, 1568)[:, ::2],
        torch.randn(1, 784).expand(512, 784),
        torch.randn(0, 784),
        torch.randn(3, 0, 784),
        torch.randn(784),
    ):
        with matrix_product("mkl"):
            expected = values_and_gradients(layer, x)
        with matrix_product(library):
            found = values_and_gradients(layer, x)
        for part, expected_part in zip(found, expected, strict=True):
            torch.testing.assert_close(part, expected_part, rtol=2e-5, atol=2e-3)


@pytest.mark.parametrize("library", products.NAMES)
def test_a_gradient_without_memory_of_its_own(library: str) -> None:
    layer = Linear(784, 128)
    x = torch.randn(512, 784)
    with matrix_product(library):
        layer(x).sum().backward()  # the gradient of a sum is one number, expanded
    assert layer.weight.grad is not None
    assert layer.bias.grad is not None
    torch.testing.assert_close(layer.weight.grad, x.sum(0).expand(128, 784), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(layer.bias.grad, torch.full((128,), 512.0))


ENDS = {"tanh": {-1.0, 1.0}, "sigmoid": {0.0, 1.0}}


@pytest.mark.parametrize("activation", [None, *ACTIVATIONS])
@pytest.mark.parametrize("library", products.NAMES)
def test_what_is_not_a_number_stays_so_and_what_is_huge_is_at_an_end(
    library: str, activation: str | None
) -> None:
    layer = Linear(784, 128, activation=activation)
    x = torch.randn(512, 784)
    x[3, 5] = torch.nan
    x[4] = 1e30
    with matrix_product(library):
        y = layer(x)
    assert y[3].isnan().all()
    assert not y[torch.arange(512) != 3].isnan().any()
    if activation in ENDS:
        assert set(y[4].tolist()) == ENDS[activation]


@pytest.mark.parametrize("activation", [None, *ACTIVATIONS])
def test_gradcheck(activation: str | None) -> None:
    torch.manual_seed(0)
    layer = Linear(4, 3, activation=activation, dtype=torch.float64)
    x = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)

    def apply(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return functional_call(layer, {"weight": weight, "bias": bias}, x)

    inputs = (x, layer.weight, layer.bias)
    assert torch.autograd.gradcheck(apply, inputs)
    assert torch.autograd.gradgradcheck(apply, inputs)


@pytest.mark.parametrize("activation", [None, *ACTIVATIONS])
def test_second_derivatives(activation: str | None) -> None:
    def penalty(library: str) -> list[torch.Tensor]:
        torch.manual_seed(0)
        layer = Linear(784, 128, activation=activation)
        x = torch.randn(256, 784, requires_grad=True)
        with matrix_product(library):
            (slope,) = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
            return list(torch.autograd.grad(slope.square().sum(), [x, layer.weight]))

    for found, expected in zip(penalty("onednn"), penalty("mkl"), strict=True):
        assert relative_error(found, expected.double()) <= 2e-5


def test_only_needed_gradients_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    computed = []
    product = Chooser.product

    def record(self: Chooser, kind: str, *args: object) -> torch.Tensor:
        computed.append(kind)
        return product(self, kind, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Chooser, "product", record)
    layer = Linear(784, 128)
    x = torch.randn(512, 784)
    with matrix_product("onednn"):
        layer(x).sum().backward()
        assert computed == ["forward", "grad_weight"]
        computed.clear()
        layer.requires_grad_(False)(x.requires_grad_()).sum().backward()
        assert computed == ["forward", "grad_input"]


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_whatever_looks_inside_gets_torchs_own_operations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def forbidden(self: Chooser, *args: object) -> torch.Tensor:
        raise AssertionError("not a plain float32 product on the CPU")

    monkeypatch.setattr(Chooser, "product", forbidden)
    layer = Linear(784, 128, activation="relu")
    x = torch.randn(512, 784)
    with matrix_product("onednn"):
        layer.double()(x.double())
        layer.bfloat16()(x.bfloat16())
        layer.float()
        with torch.autocast("cpu", torch.bfloat16):
            assert layer(x).dtype == torch.bfloat16
        parameters = dict(layer.named_parameters())

        def loss(parameters: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
            return functional_call(layer, parameters, x).sum()

        grad(loss)(parameters, x)
        vmap(loss, in_dims=(None, 0))(parameters, x.view(2, 256, 784))
        jvp(layer, (x,), (x,))
        with torch.autograd.forward_ad.dual_level():
            layer(torch.autograd.forward_ad.make_dual(x, x))
        torch.jit.trace(layer, x, check_trace=False)
        torch.compile(layer, backend="eager", fullgraph=True)(x)
        layer.to("meta")(x.to("meta"))


def test_inside_a_layer_the_wrong_width_is_torchs_error() -> None:
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        Linear(784, 128)(torch.randn(512, 783))


def test_a_library_pinned_for_a_block_and_for_good() -> None:
    products.chooser.library = "auto"
    with matrix_product("onednn"):
        assert products.chooser.library == "onednn"
        with pytest.raises(ValueError, match=r"'blas'.*auto, mkl, onednn"):
            matrix_product("blas")
        assert products.chooser.library == "onednn"
    assert products.chooser.library == "auto"
    matrix_product("mkl")
    assert products.chooser.library == "mkl"


def test_pinned_by_the_environment(mpiexec: Launch) -> None:
    program = (
        "from tutorial_lib.models.matrix_product import matrix_product_state;"
        "print(matrix_product_state())"
    )
    done = mpiexec(1, "-c", program, GAN_TUTORIAL_MATRIX_PRODUCT="onednn")
    assert "'library': 'onednn'" in done.stdout


def test_auto_measures_once_per_shape_and_takes_the_faster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measured = []
    for faster in ("mkl", "onednn"):

        def time(kind: str, operands: object, faster: str = faster) -> dict[str, float]:
            measured.append(kind)
            return {"mkl": 1.0, "onednn": 2.0} | {faster: 0.5}

        monkeypatch.setattr(products, "_time", time)
        products.chooser.choices.clear()
        measured.clear()
        layer = Linear(784, 128)
        with matrix_product("auto"):
            for rows in (513, 1024, 600):
                layer(torch.randn(rows, 784)).sum().backward()
            assert measured == ["forward", "grad_weight"]
            layer(torch.randn(1025, 784))
            assert measured == ["forward", "grad_weight", "forward"]
        assert set(products.chooser.choices.values()) == {faster}


def test_a_near_tie_goes_to_mkl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "_time", lambda *args: {"mkl": 1.0, "onednn": 0.97})
    with matrix_product("auto"):
        Linear(784, 128)(torch.randn(512, 784))
    assert set(products.chooser.choices.values()) == {"mkl"}


def test_small_products_are_torchs_own() -> None:
    with matrix_product("auto"):
        Linear(128, 1)(torch.randn(1024, 128))
        Linear(784, 128)(torch.randn(4, 784))
    assert products.chooser.choices == {}


def test_the_choice_survives_a_checkpoint() -> None:
    products.load_matrix_product_state({"library": "auto", "choices": {"a shape": "onednn"}})
    state = products.matrix_product_state()
    matrix_product("mkl")
    products.chooser.choices["a shape"] = "mkl"
    products.load_matrix_product_state(state)
    assert products.matrix_product_state() == {
        "library": "auto",
        "choices": {"a shape": "onednn"},
    }
    with pytest.raises(ValueError, match="'blas'"):
        products.load_matrix_product_state({"library": "blas", "choices": {}})


@pytest.mark.usefixtures("without_onednn")
@pytest.mark.parametrize("library", ["auto", "onednn"])
def test_without_the_operator_everything_is_torchs_own(library: str) -> None:
    torch.manual_seed(0)
    layer = Linear(784, 128, activation="tanh")
    x = torch.randn(512, 784)
    with matrix_product("mkl"):
        expected = values_and_gradients(layer, x)
    with matrix_product(library):
        found = values_and_gradients(layer, x)
    assert not products.has_onednn()
    assert all(map(torch.equal, found, expected))


def test_an_operator_that_computes_something_else_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    linear = products._onednn_linear
    products.has_onednn.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(products, "_onednn_linear", lambda *args: linear(*args) * 1.001)
        assert not products.has_onednn()
    products.has_onednn.cache_clear()
    assert products.has_onednn()  # the lock file's torch has it


def test_onednn_transposes_only_the_narrower_operand() -> None:
    torch.manual_seed(0)
    for outputs, inputs in ((128, 784), (784, 128), (64, 64)):
        grad, x = torch.randn(512, outputs), torch.randn(512, inputs)
        found = OneDnn.grad_weight(grad, x)
        assert found.is_contiguous()
        assert relative_error(found, grad.double().t() @ x.double()) <= 2e-5


DDP_PROGRAM = """
import torch
from torch import nn
from tutorial_lib.distributed import session
from tutorial_lib.distributed.data_parallel import data_parallel
from tutorial_lib.models.linear import Linear
from tutorial_lib.models.matrix_product import matrix_product

torch.manual_seed(0)
x = torch.randn(1024, 784)
model = nn.Sequential(Linear(784, 128, activation="relu"), Linear(128, 784, activation="tanh"))
reference = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 784), nn.Tanh())
for parameter, source in zip(reference.parameters(), model.parameters()):
    parameter.data.copy_(source.data)
reference(x).square().sum().backward()
with session.script() as ranks, matrix_product("onednn"):
    wrapped = data_parallel(model)
    part = slice(512 * ranks.rank, 512 * (ranks.rank + 1))
    for _ in range(3):  # the first backward also lays out the bucket
        model.zero_grad(set_to_none=False)
        wrapped(x[part]).square().sum().backward()
    for parameter, expected in zip(model.parameters(), reference.parameters()):
        scale = expected.grad.abs().max()
        assert (parameter.grad - expected.grad).abs().max() <= 2e-5 * scale
    ranks.barrier()
    print("equal")
"""


@pytest.mark.mpi
def test_inside_ddp(mpiexec: Launch) -> None:
    done = mpiexec(2, "-W", "error", "-c", DDP_PROGRAM)
    assert done.stdout.count("equal") == 2
