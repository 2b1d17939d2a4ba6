"""What each rank has of its own in a training, so that all of it survives a checkpoint."""

from __future__ import annotations

from typing import Any

from torch import nn

from tutorial_lib.models.matrix_product import load_matrix_product_state, matrix_product_state


def own_state(network: nn.Module) -> dict[str, Any]:
    """Return this rank's running statistics and how its process multiplies matrices.

    Args:
        network: The plain network; its parameters are equal on all ranks and no part of this.
    """
    buffers = {name: buffer.cpu().clone() for name, buffer in network.named_buffers()}
    return {"matrix_product": matrix_product_state(), "buffers": buffers}


def load_own_state(network: nn.Module, state: dict[str, Any]) -> None:
    """Go on from ``own_state``'s."""
    load_matrix_product_state(state["matrix_product"])
    buffers = dict(network.named_buffers())
    for name, value in state["buffers"].items():
        buffers[name].copy_(value)
