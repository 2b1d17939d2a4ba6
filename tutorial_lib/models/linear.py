"""A linear layer that uses the fastest matrix product of the processor it runs on."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tutorial_lib.models.matrix_product import ACTIVATIONS, SMALL, Mkl, Product, chooser, compute

# Each takes the gradient of an activation's output and that output.
_ACTIVATION_GRADIENTS: dict[str, Product] = {
    "relu": lambda grad, y: torch.ops.aten.threshold_backward(grad, y, 0),
    "tanh": torch.ops.aten.tanh_backward,
    "sigmoid": torch.ops.aten.sigmoid_backward,
}


class Linear(nn.Linear):
    """``torch.nn.Linear``, optionally with an activation after it, at the processor's speed.

    Parameters, initial values and ``state_dict`` are those of ``nn.Linear``, and so are the
    results, up to rounding. What differs is who multiplies float32 matrices on the CPU, forward
    and backward: see ``tutorial_lib.models.matrix_product``.

    Args:
        in_features: Width of the input.
        out_features: Width of the output.
        bias: Whether to add one.
        activation: "relu", "tanh", "sigmoid" or None. It is part of the layer because oneDNN
            applies it to the products while they are still in a register; as an operation of
            its own, a tanh of 512 x 784 numbers can take as long as the products themselves.
        device: Of the parameters.
        dtype: Of the parameters.

    Raises:
        ValueError: An activation of another name; apply it to the layer's output.

    **Source:** CNTK's ``Dense(shape, activation)``.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        activation: str | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if activation is not None and activation not in ACTIVATIONS:
            raise ValueError(
                f"no activation {activation!r} in a linear layer: choose one of "
                f"{', '.join(ACTIVATIONS)}, or None and apply your own to its output"
            )
        super().__init__(in_features, out_features, bias, device, dtype)
        self.activation = activation

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Apply the layer.

        Args:
            input: (..., in_features).

        Returns:
            (..., out_features).
        """
        if not _is_choosable(input, self.weight):
            return Mkl.forward(input, self.weight, self.bias, self.activation)
        x = input.reshape(-1, self.in_features).contiguous()
        y: torch.Tensor = _Linear.apply(x, self.weight, self.bias, self.activation)  # type: ignore[no-untyped-call]
        return y.view(*input.shape[:-1], self.out_features)

    def extra_repr(self) -> str:
        """Describe the layer in its model's printout."""
        return super().extra_repr() + (f", activation={self.activation}" * bool(self.activation))


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        activation: str | None,
    ) -> torch.Tensor:
        y = chooser.product(
            "forward", (x, weight, bias, activation), x.shape[0], x.shape[1], weight.shape[0]
        )
        ctx.save_for_backward(x, weight, y if activation else None)
        ctx.activation = activation
        return y

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> Any:
        x, weight, y = ctx.saved_tensors
        needs_x, needs_weight, needs_bias, _ = ctx.needs_input_grad
        grad = grad_outputs[0].contiguous()
        if ctx.activation is not None:
            grad = _ACTIVATION_GRADIENTS[ctx.activation](grad, y)
        shape = x.shape[0], x.shape[1], weight.shape[0]
        product = chooser.product
        if torch.is_grad_enabled():  # this backward will be differentiated again
            product = _differentiable_product
        return (
            product("grad_input", (grad, weight), *shape) if needs_x else None,
            product("grad_weight", (grad, x), *shape) if needs_weight else None,
            grad.sum(0) if needs_bias else None,
            None,
        )


def _differentiable_product(
    kind: str, operands: tuple[Any, ...], rows: int, inputs: int, outputs: int
) -> torch.Tensor:
    return compute("mkl", kind, operands)


def _is_choosable(x: torch.Tensor, weight: torch.Tensor) -> bool:
    """Whether there is a choice of library: a float32 product on the CPU, not a small one.

    Whatever wants to look inside the layer gets torch's own operations: autocast, the compiler,
    function transforms (vmap, jvp), forward-mode derivatives, tensor subclasses.
    """
    return (
        not torch.compiler.is_compiling()
        and not torch._C._is_tracing()
        and chooser.library != "mkl"
        and type(x) is torch.Tensor
        and type(weight) in (torch.Tensor, nn.Parameter)
        and x.dtype == weight.dtype == torch.float32
        and x.is_cpu
        and weight.is_cpu
        and x.layout == weight.layout == torch.strided
        and x.dim() > 1
        and x.shape[-1] == weight.shape[1]
        and x.numel() * weight.shape[0] >= SMALL
        and weight.is_contiguous()
        and bool(torch.backends.mkldnn.enabled)
        and not torch.is_autocast_enabled("cpu")
        and not torch._C._are_functorch_transforms_active()
        and torch.autograd.forward_ad._current_level < 0
    )
