"""Do all ranks hold the same model? Ranks that drift apart raise no error by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from zlib import crc32

import torch
import torch.distributed as dist
from torch import nn

from tutorial_lib.distributed import session
from tutorial_lib.distributed.data_parallel import unwrap
from tutorial_lib.distributed.fingerprint import ranks_in_words


class OutOfSyncError(RuntimeError):
    """Ranks hold different values where they should hold the same; the message says which."""


def check_in_sync(model: nn.Module, gradients: bool = True, buffers: bool = True) -> None:
    """Compare a model between the ranks, bit for bit, by a checksum of each tensor.

    The ranks exchange 8 bytes each; only when those differ do they look which tensor it is. Call
    it every so many steps, between ``backward()`` and the update or after it.

    Args:
        model: The plain module, or its data-parallel wrapper.
        gradients: Whether to compare the gradients too.
        buffers: Whether to compare the buffers too. ``data_parallel`` leaves the running
            statistics of a BatchNorm to each rank, so they differ: leave them out there.

    Raises:
        OutOfSyncError: On all ranks: the first tensor that differs, and on which ranks.

    **Distributed:** collective; without other ranks it does nothing.
    """
    ranks = session.current()
    if ranks is None or ranks.world_size == 1:
        return
    sums = dict(_checksums(unwrap(model), gradients, buffers))
    mine = torch.tensor([crc32(repr(sums).encode())], device=ranks.device)
    everyone = [torch.empty_like(mine) for _ in range(ranks.world_size)]
    dist.all_gather(everyone, mine)
    if len({int(one) for one in everyone}) == 1:
        return
    known: list[dict[str, int | None]] = [{} for _ in range(ranks.world_size)]
    dist.all_gather_object(known, sums)
    raise OutOfSyncError(_difference(known))


def _checksums(
    model: nn.Module, gradients: bool, buffers: bool
) -> Iterator[tuple[str, int | None]]:
    """Name and checksum of each tensor; None stands for a gradient that is not there."""
    for name, parameter in model.named_parameters():
        yield f"parameter {name}", _checksum(parameter)
    if buffers:
        for name, buffer in model.named_buffers():
            yield f"buffer {name}", _checksum(buffer)
    if gradients:
        for name, parameter in model.named_parameters():
            gradient = parameter.grad
            yield f"gradient of {name}", None if gradient is None else _checksum(gradient)


def _checksum(tensor: torch.Tensor) -> int:
    values = tensor.detach().cpu().contiguous().reshape(-1)
    return crc32(values.view(torch.uint8).numpy().data)


def _difference(known: list[dict[str, int | None]]) -> str:
    """The first tensor that differs, and who has what, in words."""
    names = list(dict.fromkeys(name for sums in known for name in sums))
    for name in names:
        holders: dict[object, list[int]] = {}
        for rank, sums in enumerate(known):
            holders.setdefault(sums.get(name, "no such tensor"), []).append(rank)
        if len(holders) > 1:
            others = sum(len({sums.get(n, "") for sums in known}) > 1 for n in names) - 1
            parts = [
                f"{ranks_in_words(ranks)} {_holding(value, len(ranks))}"
                for value, ranks in holders.items()
            ]
            more = f"; {others} more differ" if others else ""
            return f"{name} is not the same on all ranks: {'; '.join(parts)}{more}"
    return "the ranks' models differ"


def _holding(value: object, count: int) -> str:
    if value is None:
        return "has none" if count == 1 else "have none"
    if isinstance(value, str):
        return f"{'has' if count == 1 else 'have'} {value}"
    return f"{'has' if count == 1 else 'have'} checksum {value:08x}"
