"""Which library multiplies float32 matrices on the CPU: MKL, as torch does by itself, or oneDNN.

Both are inside torch. Which is faster depends on the processor and on the shapes: on some AMD
processors oneDNN takes half of MKL's time, on others they tie. So the first product of each
shape is timed with both, and the faster one is used from then on.

The two round differently (by about 1e-7 of the result; of a tanh, which is made from oneDNN's
sigmoid, by 1e-7 of 1), so a run that must repeat another one bit for bit names its library:
``matrix_product("mkl")``, or the environment variable ``GAN_TUTORIAL_MATRIX_PRODUCT``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import cache
from types import TracebackType
from typing import Any, TypedDict

import torch
import torch.nn.functional as F

ENVIRONMENT = "GAN_TUTORIAL_MATRIX_PRODUCT"
NAMES = ("auto", "mkl", "onednn")
SMALL = 2**20  # multiplications, about 20 microseconds: below, a choice costs what it gains
REPEATS = 3  # timings of each library, of which the shortest counts
MARGIN = 1.05  # what oneDNN must gain: a tie would be decided anew by each run

Product = Callable[..., torch.Tensor]
ACTIVATIONS: dict[str, Product] = {
    "relu": torch.relu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
}


class ProductState(TypedDict):
    """What a checkpoint keeps of the choice."""

    library: str
    choices: dict[str, str]


class Mkl:
    """The three products of a linear layer as torch computes them by itself."""

    @staticmethod
    def forward(
        x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, activation: str | None
    ) -> torch.Tensor:
        """Activation of x @ weight.T + bias: (n, in), (out, in), (out,) to (n, out)."""
        y = F.linear(x, weight, bias)
        return y if activation is None else ACTIVATIONS[activation](y)

    @staticmethod
    def grad_input(grad: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Return grad @ weight: (n, out), (out, in) to (n, in)."""
        return grad.mm(weight)

    @staticmethod
    def grad_weight(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Return grad.T @ x: (n, out), (n, in) to (out, in)."""
        return grad.t().mm(x)


class OneDnn:
    """The same through oneDNN's linear layer, whose output passes the activation on its way out.

    It copies a first operand that is not laid out row by row, but reads a second one in any
    layout. So what has to be transposed comes second, or is the narrower of the two.
    """

    @staticmethod
    def forward(
        x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, activation: str | None
    ) -> torch.Tensor:
        """As ``Mkl.forward``."""
        if activation == "relu":  # oneDNN's would turn NaN into 0, and hide a training gone wrong
            return _onednn_linear(x, weight, bias).relu_()
        if activation == "tanh":  # of y: 2 * sigmoid(2 * y) - 1, in a third of tanh's own time
            y = _onednn_linear(x * 2, weight, None if bias is None else bias * 2, "sigmoid")
            return torch.add(_MINUS_ONE, y, alpha=2, out=y)
        return _onednn_linear(x, weight, bias, activation or "none")

    @staticmethod
    def grad_input(grad: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """As ``Mkl.grad_input``."""
        return _onednn_linear(grad, weight.t())

    @staticmethod
    def grad_weight(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """As ``Mkl.grad_weight``."""
        if grad.shape[1] <= x.shape[1]:
            return _onednn_linear(grad.t(), x.t())
        return _onednn_linear(x.t(), grad.t()).t().contiguous()


_MINUS_ONE = torch.tensor(-1.0)

LIBRARIES: dict[str, type[Mkl] | type[OneDnn]] = {"mkl": Mkl, "onednn": OneDnn}


def _onednn_linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str = "none",
) -> torch.Tensor:
    result: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, activation, [], "")
    return result


@cache
def has_onednn() -> bool:
    """Whether the installed torch has oneDNN's linear layer, and it computes what it should.

    The operator is internal to torch, so its presence is no promise.
    """
    stream = torch.Generator().manual_seed(0)
    x, weight, bias, wide, narrow = (
        torch.randn(shape, generator=stream) for shape in ((8, 16), (4, 16), (4,), (8, 32), (8, 4))
    )
    products: list[tuple[str, tuple[Any, ...]]] = [
        *(("forward", (x, weight, bias, activation)) for activation in (None, *ACTIVATIONS)),
        ("grad_input", (narrow, weight)),
        ("grad_weight", (narrow, x)),
        ("grad_weight", (wide, x)),
    ]
    try:
        return all(
            torch.allclose(compute("onednn", *product), compute("mkl", *product), atol=1e-5)
            for product in products
        )
    except (AttributeError, RuntimeError):
        return False


class Chooser:
    """Decides for each product, and remembers.

    Args:
        library: "auto", "mkl" or "onednn".

    Attributes:
        library: The same.
        choices: What "auto" has chosen so far, by kind of product, shape and number of threads;
            numbers of rows up to the same power of two share a choice.
    """

    def __init__(self, library: str) -> None:
        self.library = _known(library)
        self.choices: dict[str, str] = {}

    def product(
        self, kind: str, operands: tuple[Any, ...], rows: int, inputs: int, outputs: int
    ) -> torch.Tensor:
        """Compute one product with the library that is pinned, was chosen, or is chosen now.

        Args:
            kind: "forward", "grad_input" or "grad_weight".
            operands: Of that product; see ``Mkl``.
            rows: Samples.
            inputs: Width of the layer's input.
            outputs: Width of its output.
        """
        library = self.library
        if library == "onednn" and not has_onednn():
            library = "mkl"
        elif library == "auto":
            most_rows = 1 << (rows - 1).bit_length()
            threads = torch.get_num_threads()
            activation = f" {operands[3]}" if kind == "forward" and operands[3] else ""
            shape = f"{kind}{activation} {most_rows}x{inputs}x{outputs}, threads: {threads}"
            library = self.choices.get(shape) or self._choose(shape, kind, operands)
        return compute(library, kind, operands)

    def _choose(self, shape: str, kind: str, operands: tuple[Any, ...]) -> str:
        choice = "mkl"
        if has_onednn():
            seconds = _time(kind, operands)
            if seconds["onednn"] * MARGIN < seconds["mkl"]:
                choice = "onednn"
        self.choices[shape] = choice
        return choice


def compute(library: str, kind: str, operands: tuple[Any, ...]) -> torch.Tensor:
    """Compute one product of a linear layer with a library given by its name."""
    result: torch.Tensor = getattr(LIBRARIES[library], kind)(*operands)
    return result


def _time(kind: str, operands: tuple[Any, ...]) -> dict[str, float]:
    """Shortest time of each library, in seconds.

    In turn, so that both meet the same load, and in this thread's own time, which stands still
    while another program has the core.
    """
    seconds = dict.fromkeys(LIBRARIES, float("inf"))
    for repeat in range(1 + REPEATS):
        for library in LIBRARIES:
            start = time.thread_time()
            compute(library, kind, operands)
            if repeat > 0:  # the first one also loads and prepares kernels
                seconds[library] = min(seconds[library], time.thread_time() - start)
    return seconds


def _known(library: str) -> str:
    if library not in NAMES:
        raise ValueError(f"no matrix product {library!r}: choose one of {', '.join(NAMES)}")
    return library


chooser = Chooser(os.environ.get(ENVIRONMENT, "auto"))


class matrix_product:  # noqa: N801  (used like torch.set_grad_enabled)
    """Choose the library of every ``Linear`` in this process, for good or for a ``with`` block.

    ``matrix_product("mkl")`` is what ``nn.Linear`` does, to the bit. With "onednn", products
    that oneDNN cannot do (other types, other devices, small ones) are torch's own all the same.

    Args:
        library: "auto" (the faster one, by a short measurement at the first product of each
            shape), "mkl" or "onednn".

    Raises:
        ValueError: Another name.

    **Distributed:** not collective. With "auto" the ranks may differ, in how they round;
    gradients are summed and weights stay equal on all ranks all the same.
    """

    def __init__(self, library: str) -> None:
        self._before = chooser.library
        chooser.library = _known(library)

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        chooser.library = self._before


def matrix_product_state() -> ProductState:
    """What a checkpoint keeps, so that a resumed run rounds like an uninterrupted one."""
    return {"library": chooser.library, "choices": dict(chooser.choices)}


def load_matrix_product_state(state: ProductState) -> None:
    """Use the library, and the choices, of the run that ``state`` comes from."""
    chooser.library = _known(state["library"])
    chooser.choices = dict(state["choices"])
