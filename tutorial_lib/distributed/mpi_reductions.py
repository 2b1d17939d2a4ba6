"""Collectives that combine the ranks' values: all_reduce, reduce, reduce_scatter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from mpi4py import MPI

from tutorial_lib.distributed import mpi_types as types
from tutorial_lib.distributed.mpi_operation import Operations, Part, only
from tutorial_lib.distributed.mpi_work import Work

Tensors = Sequence[torch.Tensor]


class Reductions(Operations):
    """The reducing collectives of a group."""

    def allreduce(self, tensors: Tensors, opts: Any = None) -> Work:
        """all_reduce, in place; several tensors go together."""
        opts = opts or dist.AllreduceOptions()
        if tensors[0].is_sparse:
            return self._allreduce_sparse(only(tensors), opts)
        op = opts.reduceOp
        return self.begin("all_reduce", tensors, [self._all_reduced(t, op) for t in tensors], opts)

    allreduce_coalesced = allreduce

    def _all_reduced(self, tensor: torch.Tensor, op: dist.ReduceOp) -> Part:
        how = types.reduction(tensor.dtype, op)
        values = types.staged(tensor, how.dtype)
        if how.is_scaled:
            values.detach().mul_(op.factor)

        def post(comm: MPI.Comm) -> list[MPI.Request]:
            return [
                comm.Iallreduce(MPI.IN_PLACE, piece, how.mpi_op) for piece in types.pieces(values)
            ]

        def finish() -> None:
            self._deliver(values, tensor, how)

        return Part(post, finish if how.is_mean or values is not tensor else None)

    def _deliver(self, values: torch.Tensor, tensor: torch.Tensor, how: types.Reduction) -> None:
        """Complete a reduction on a rank that gets its result."""
        if how.is_mean:
            types.divide(values.detach(), self.size())
        types.unstage(values, tensor)

    def _allreduce_sparse(self, tensor: torch.Tensor, opts: Any) -> Work:
        """Sum COO tensors: all ranks exchange their entries, and each adds them up."""
        how = types.reduction(tensor.dtype, opts.reduceOp)
        if how.mpi_op != MPI.SUM or how.is_scaled:
            raise ValueError(
                "sparse tensors can be summed or averaged: use to_dense() for the rest"
            )
        mine = tensor.detach().coalesce()
        counts = [torch.empty(1, dtype=torch.int64) for _ in range(self.size())]
        self.allgather([counts], [torch.tensor([mine._nnz()])]).wait()
        gathered = []
        for entries in (mine.indices().t(), mine.values()):
            lists = [entries.new_empty((int(n), *entries.shape[1:])) for n in counts]
            self.allgather([lists], [entries]).wait()
            gathered.append(torch.cat(lists))
        indices, values = gathered
        total = torch.sparse_coo_tensor(
            indices.t(), values.to(how.dtype), mine.shape, check_invariants=True
        ).coalesce()
        if how.is_mean:
            types.divide(total.values(), self.size())
        with torch.no_grad():
            tensor.copy_(total.to(tensor.dtype))
        return self.begin("all_reduce", [], [], opts, result=[tensor])

    def reduce(self, tensors: Tensors, opts: Any) -> Work:
        """Reduce to one rank; the others keep their tensors."""
        tensor, root = only(tensors), opts.rootRank
        how = types.reduction(tensor.dtype, opts.reduceOp)
        values = types.staged(tensor, how.dtype)
        is_root = root == self.rank()
        if how.is_scaled:
            values = values.detach() * opts.reduceOp.factor

        def post(comm: MPI.Comm) -> list[MPI.Request]:
            return [
                comm.Ireduce(MPI.IN_PLACE, piece, how.mpi_op, root)
                if is_root
                else comm.Ireduce(piece, None, how.mpi_op, root)
                for piece in types.pieces(values)
            ]

        def finish() -> None:
            if is_root:
                self._deliver(values, tensor, how)

        return self.begin("reduce", tensors, [Part(post, finish)], opts, root)

    def reduce_scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any) -> Work:
        """Each rank gets the reduction of what all have for it; shapes may differ by rank."""
        output, tensors = only(outputs), only(inputs)
        how = types.reduction(output.dtype, opts.reduceOp)
        values = torch.cat([types.staged(t, how.dtype).detach().view(-1) for t in tensors])
        if how.is_scaled:
            values.mul_(opts.reduceOp.factor)
        target = types.staged(output, how.dtype, filled=False)
        counts = [tensor.numel() for tensor in tensors]
        if len(counts) != self.size() or counts[self.rank()] != output.numel():
            raise ValueError(f"{self.size()} ranks need {self.size()} inputs, one like the output")

        def post(comm: MPI.Comm) -> MPI.Request:
            return comm.Ireduce_scatter(types.spec(values), types.spec(target), counts, how.mpi_op)

        part = Part(post, lambda: self._deliver(target, output, how))
        return self.begin("reduce_scatter", tensors, [part], opts, result=outputs)

    def reduce_scatter_single(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any) -> Work:
        """reduce_scatter_tensor: each rank gets its chunk of the reduction."""
        return self.reduce_scatter_single_coalesced([output], [tensor], opts)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any) -> Work:
        """As ``reduce_scatter_single``; several tensors go together."""
        op = opts.reduceOp
        parts = [self._chunk(o, i, op) for o, i in zip(outputs, inputs, strict=True)]
        return self.begin("reduce_scatter_tensor", inputs, parts, opts, result=outputs)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def _chunk(self, output: torch.Tensor, tensor: torch.Tensor, op: dist.ReduceOp) -> Part:
        if tensor.numel() != output.numel() * self.size() or tensor.dtype != output.dtype:
            raise ValueError(
                f"the input must hold {self.size()} chunks of {output.numel()} {output.dtype}, "
                f"but holds {tensor.numel()} {tensor.dtype}"
            )
        how = types.reduction(output.dtype, op)
        target = types.staged(output, how.dtype, filled=False)
        values = types.apart(types.staged(tensor, how.dtype).detach(), target)
        if how.is_scaled:
            values = values * op.factor

        def post(comm: MPI.Comm) -> MPI.Request:
            source = [types.memory(values), *types.spec(target)[1:]]
            return comm.Ireduce_scatter_block(source, types.spec(target), how.mpi_op)

        return Part(post, lambda: self._deliver(target, output, how))
