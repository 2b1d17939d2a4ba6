"""What MPI sees of a tensor: its memory, its datatype, and how values of it are reduced."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import Any

import torch
import torch.distributed as dist
from mpi4py import MPI

Spec = list[object]  # mpi4py's [buffer, count, datatype], also [buffer, (counts, starts), datatype]

# More elements go in pieces where that is possible: up to MPI 3 a count is an int.
MAX_COUNT = 2**30
INT_MAX = 2**31 - 1

MPI_TYPES: dict[torch.dtype, MPI.Datatype] = {
    torch.bool: MPI.UINT8_T,
    torch.uint8: MPI.UINT8_T,
    torch.uint16: MPI.UINT16_T,
    torch.uint32: MPI.UINT32_T,
    torch.uint64: MPI.UINT64_T,
    torch.int8: MPI.INT8_T,
    torch.int16: MPI.INT16_T,
    torch.int32: MPI.INT32_T,
    torch.int64: MPI.INT64_T,
    torch.float32: MPI.FLOAT,
    torch.float64: MPI.DOUBLE,
    torch.complex64: MPI.C_FLOAT_COMPLEX,
    torch.complex128: MPI.C_DOUBLE_COMPLEX,
}

MPI_OPS: dict[str, MPI.Op] = {
    "SUM": MPI.SUM,
    "AVG": MPI.SUM,
    "PREMUL_SUM": MPI.SUM,
    "PRODUCT": MPI.PROD,
    "MIN": MPI.MIN,
    "MAX": MPI.MAX,
    "BAND": MPI.BAND,
    "BOR": MPI.BOR,
    "BXOR": MPI.BXOR,
}

# A bool is a byte of 0 or 1 and must stay one: True + True is True.
BOOL_OPS: dict[str, MPI.Op] = {
    "SUM": MPI.MAX,
    "PRODUCT": MPI.MIN,
    "MIN": MPI.MIN,
    "MAX": MPI.MAX,
    "BAND": MPI.MIN,
    "BOR": MPI.MAX,
    "BXOR": MPI.BXOR,
}


# What is only moved may have any dtype: it moves as one of these, of the same width.
RAW_DTYPES = {
    1: torch.uint8,
    2: torch.int16,
    4: torch.int32,
    8: torch.int64,
    16: torch.complex128,
}


@dataclass(frozen=True)
class Reduction:
    """How tensors of one dtype are reduced by one ``ReduceOp``.

    Attributes:
        dtype: What the values are computed in: a narrow float widens to float32 and is rounded
            once, at the end.
        mpi_op: MPI's operation.
        is_mean: Whether the reduced values are then divided by the number of ranks.
        is_scaled: Whether each rank first multiplies its values by the ``ReduceOp``'s factor.
    """

    dtype: torch.dtype
    mpi_op: MPI.Op
    is_mean: bool
    is_scaled: bool


def reduction(dtype: torch.dtype, op: dist.ReduceOp) -> Reduction:
    """How to reduce tensors of a dtype.

    Args:
        dtype: Of the tensors.
        op: torch's operation.

    Returns:
        The reduction.

    Raises:
        ValueError: The operation means nothing for the dtype: convert the tensor first.
    """
    return _reduction(dtype, getattr(op, "op", op))  # options wrap what callers give


@cache
def _reduction(dtype: torch.dtype, op: Any) -> Reduction:
    name: str = op.name
    wide = dtype
    if dtype not in MPI_TYPES:
        if not (dtype.is_floating_point or dtype.is_complex):
            raise ValueError(f"tensors of {dtype} can be moved, not reduced: convert them first")
        wide = torch.complex64 if dtype.is_complex else torch.float32
    ops = BOOL_OPS if dtype == torch.bool else MPI_OPS
    is_bitwise = name in ("BAND", "BOR", "BXOR")
    is_ordered = name in ("MIN", "MAX")
    if (
        name not in ops
        or (is_bitwise and (dtype.is_floating_point or dtype.is_complex))
        or (is_ordered and dtype.is_complex)
    ):
        raise ValueError(f"ReduceOp.{name} means nothing for {dtype}: convert the tensor first")
    return Reduction(wide, ops[name], name == "AVG", name == "PREMUL_SUM")


def divide(values: torch.Tensor, divisor: int) -> None:
    """Divide in place; integers round towards zero, as NCCL's do."""
    if values.is_floating_point() or values.is_complex():
        values.div_(divisor)
    elif values.dtype in (torch.uint16, torch.uint32, torch.uint64):
        array = values.numpy()  # torch has no division for these
        array //= divisor
    else:
        values.div_(divisor, rounding_mode="trunc")


def staged(
    tensor: torch.Tensor, dtype: torch.dtype | None = None, filled: bool = True
) -> torch.Tensor:
    """The tensor itself where MPI can work in its memory, else a contiguous copy on the host.

    Args:
        tensor: Anywhere (a CUDA tensor is copied to the host), with any strides.
        dtype: Wanted; None keeps the tensor's.
        filled: Whether the copy needs the tensor's values.

    Returns:
        A contiguous CPU tensor; copy it back (``unstage``) when it is not the tensor itself.
    """
    dtype = dtype or tensor.dtype
    if tensor.is_cpu and tensor.dtype == dtype and tensor.is_contiguous() and not tensor.is_conj():
        return tensor
    if not filled:
        return torch.empty(tensor.shape, dtype=dtype)
    source = tensor.detach().resolve_conj()
    return source.to("cpu", dtype, copy=True, memory_format=torch.contiguous_format)


def unstage(copy: torch.Tensor, tensor: torch.Tensor) -> None:
    """Bring the values back that ``staged`` took elsewhere."""
    if copy is not tensor:
        tensor.detach().copy_(copy)


def memory(tensor: torch.Tensor) -> MPI.buffer:
    """The bytes of a contiguous CPU tensor, not copied. The tensor must outlive their use."""
    return MPI.buffer.fromaddress(tensor.data_ptr(), tensor.nbytes)


def spec(tensor: torch.Tensor) -> Spec:
    """A contiguous CPU tensor of a dtype that MPI knows, whole."""
    return [memory(tensor), *_counted(tensor.numel(), tensor.dtype)]


def as_bytes(tensor: torch.Tensor) -> Spec:
    """A contiguous CPU tensor of any dtype, as so many bytes."""
    return [memory(tensor), *_counted(tensor.nbytes, torch.uint8)]


def _counted(count: int, dtype: torch.dtype) -> tuple[int, MPI.Datatype]:
    if count <= INT_MAX or MPI.VERSION >= 4:
        return count, MPI_TYPES[dtype]
    return 1, _as_one(count, dtype)


@cache
def _as_one(count: int, dtype: torch.dtype) -> MPI.Datatype:
    """A datatype of more elements than an int counts; kept for good, as there are few."""
    mpi_type, block = MPI_TYPES[dtype], 1 << 20
    blocks = mpi_type.Create_contiguous(block).Create_contiguous(count // block)
    rest = mpi_type.Create_contiguous(count % block)
    start = count // block * block * mpi_type.size
    return MPI.Datatype.Create_struct([1, 1], [0, start], [blocks, rest]).Commit()


def pieces(tensor: torch.Tensor) -> Iterator[Spec]:
    """A contiguous CPU tensor of a dtype that MPI knows, in pieces whose count fits an int."""
    if tensor.numel() <= MAX_COUNT:
        yield spec(tensor)
        return
    for piece in tensor.detach().view(-1).split(MAX_COUNT):
        yield spec(piece)


def parts(tensor: torch.Tensor, counts: Sequence[int]) -> Spec:
    """A contiguous CPU tensor as parts that lie one after another, each of so many elements."""
    starts = [0, *accumulate(counts[:-1])]
    return [memory(tensor), (list(counts), starts), MPI_TYPES[tensor.dtype]]


def raw(tensor: torch.Tensor) -> torch.Tensor:
    """The memory of a contiguous CPU tensor as a flat tensor of a dtype that MPI knows."""
    return tensor.detach().view(-1).view(RAW_DTYPES[tensor.element_size()])


def packed(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """The values of some tensors of one dtype, one tensor after another, as ``raw`` has them."""
    parts = [raw(staged(tensor)) for tensor in tensors]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def unpack(values: torch.Tensor, tensors: Sequence[torch.Tensor]) -> None:
    """Bring values that lie one tensor after another into the tensors; ``packed``'s inverse."""
    parts = values.split([tensor.numel() for tensor in tensors])
    for part, tensor in zip(parts, tensors, strict=True):
        tensor.detach().copy_(part.view(tensor.dtype).view(tensor.shape))


def apart(source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The source, or a copy where its memory overlaps the target's, which MPI forbids."""
    start, stop = target.data_ptr(), target.data_ptr() + target.nbytes
    overlaps = start < source.data_ptr() + source.nbytes and source.data_ptr() < stop
    return source.clone() if overlaps else source
