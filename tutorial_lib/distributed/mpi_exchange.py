"""Collectives that move values: broadcast, gather, scatter, all_gather, all_to_all, barrier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from mpi4py import MPI

from tutorial_lib.distributed import mpi_types as types
from tutorial_lib.distributed.mpi_operation import Operations, Part, flat, only
from tutorial_lib.distributed.mpi_work import Work

Tensors = Sequence[torch.Tensor]


class Exchange(Operations):
    """The moving collectives of a group."""

    def barrier(self, opts: Any = None) -> Work:
        """Nobody is past it before everybody has come."""
        return self.begin("barrier", [], [Part(lambda comm: comm.Ibarrier())], opts)

    def broadcast(self, tensors: Tensors, opts: Any) -> Work:
        """Copy one rank's tensors to all."""
        root = opts.rootRank
        parts = [self._copied(tensor, root) for tensor in tensors]
        return self.begin("broadcast", tensors, parts, opts, root)

    def _copied(self, tensor: torch.Tensor, root: int) -> Part:
        is_root = root == self.rank()
        values = types.staged(tensor, filled=is_root)

        def post(comm: MPI.Comm) -> list[MPI.Request]:
            return [comm.Ibcast(piece, root) for piece in types.pieces(types.raw(values))]

        return Part(
            post, None if is_root or values is tensor else lambda: types.unstage(values, tensor)
        )

    def allgather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> Work:
        """Every rank gets every rank's tensor; shapes may differ by rank."""
        parts = [self._gathered(o, i) for o, i in zip(outputs, inputs, strict=True)]
        return self.begin("all_gather", inputs, parts, opts, result=flat(outputs))

    def allgather_coalesced(
        self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None
    ) -> Work:
        """As ``allgather`` for several tensors; ``outputs`` has a list for each rank."""
        return self.allgather(list(zip(*outputs, strict=True)), inputs, opts)

    def _gathered(self, outputs: Tensors, tensor: torch.Tensor) -> Part:
        counts = [output.numel() for output in outputs]
        self._check_one_each(counts, tensor)
        mine = types.packed([tensor])
        everything = mine.new_empty(sum(counts))

        def post(comm: MPI.Comm) -> MPI.Request:
            if len(set(counts)) == 1:
                where = [types.memory(everything), *types.spec(mine)[1:]]
                return comm.Iallgather(types.spec(mine), where)
            where = types.parts(everything, counts)
            return comm.Iallgatherv(types.spec(mine), where)

        return Part(post, lambda: types.unpack(everything, outputs))

    def _check_one_each(self, counts: list[int], mine: torch.Tensor) -> None:
        if len(counts) != self.size() or counts[self.rank()] != mine.numel():
            raise ValueError(
                f"{self.size()} ranks need {self.size()} tensors, and rank {self.rank()}'s with "
                f"{mine.numel()} elements; got tensors with {counts} elements"
            )

    def all_gather_single(
        self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None
    ) -> Work:
        """all_gather_into_tensor: every rank's tensor, one after another in one."""
        return self.all_gather_single_coalesced([output], [tensor], opts)

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: Any = None
    ) -> Work:
        """As ``all_gather_single``; several tensors go together."""
        parts = [self._gathered_into(o, i) for o, i in zip(outputs, inputs, strict=True)]
        return self.begin("all_gather_into_tensor", inputs, parts, opts, result=outputs)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def _gathered_into(self, output: torch.Tensor, tensor: torch.Tensor) -> Part:
        if output.numel() != tensor.numel() * self.size() or output.dtype != tensor.dtype:
            raise ValueError(
                f"the output must hold {self.size()} tensors of {tensor.numel()} {tensor.dtype}, "
                f"but holds {output.numel()} {output.dtype}"
            )
        everything = types.staged(output, filled=False)
        mine = types.raw(types.staged(tensor))
        is_in_place = mine.data_ptr() == everything.data_ptr() + self.rank() * mine.nbytes
        if not is_in_place:
            mine = types.apart(mine, everything)

        def post(comm: MPI.Comm) -> MPI.Request:
            where = [types.memory(everything), *types.spec(mine)[1:]]
            return comm.Iallgather(MPI.IN_PLACE if is_in_place else types.spec(mine), where)

        return Part(post, lambda: types.unstage(everything, output), (mine,))

    def gather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any) -> Work:
        """One rank gets every rank's tensor; shapes may differ by rank."""
        root, mine = opts.rootRank, types.packed([only(inputs)])
        if root != self.rank():
            part = Part(lambda comm: comm.Igatherv(types.spec(mine), None, root))
            return self.begin("gather", inputs, [part], opts, root)
        targets = only(outputs)
        counts = [target.numel() for target in targets]
        self._check_one_each(counts, mine)
        everything = mine.new_empty(sum(counts))

        def post(comm: MPI.Comm) -> MPI.Request:
            return comm.Igatherv(types.spec(mine), types.parts(everything, counts), root)

        part = Part(post, lambda: types.unpack(everything, targets))
        return self.begin("gather", inputs, [part], opts, root, targets)

    def scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any) -> Work:
        """Each rank gets its own one of one rank's tensors; shapes may differ by rank."""
        root, output = opts.rootRank, only(outputs)
        mine = types.staged(output, filled=False)
        if root != self.rank():
            part = Part(
                lambda comm: comm.Iscatterv(None, types.spec(types.raw(mine)), root),
                lambda: types.unstage(mine, output),
            )
            return self.begin("scatter", outputs, [part], opts, root)
        sources = only(inputs)
        counts = [source.numel() for source in sources]
        self._check_one_each(counts, mine)
        everything = types.packed(sources)

        def post(comm: MPI.Comm) -> MPI.Request:
            where = types.parts(everything, counts)
            return comm.Iscatterv(where, types.spec(types.raw(mine)), root)

        part = Part(post, lambda: types.unstage(mine, output))
        return self.begin("scatter", outputs, [part], opts, root)

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Work:
        """Every rank has a tensor for every rank; shapes may differ."""
        source = types.packed(inputs)
        target = source.new_empty(sum(output.numel() for output in outputs))
        part = self._exchanged(
            source, [t.numel() for t in inputs], target, [t.numel() for t in outputs]
        )
        part = part._replace(finish=lambda: types.unpack(target, outputs))
        return self.begin("all_to_all", inputs, [part], opts, result=outputs)

    def all_to_all_single(
        self,
        output: torch.Tensor,
        tensor: torch.Tensor,
        output_split_sizes: Sequence[int],
        input_split_sizes: Sequence[int],
        opts: Any = None,
    ) -> Work:
        """As ``alltoall`` with one tensor, split along its first dimension."""
        target = types.staged(output, filled=False)
        source = types.apart(types.raw(types.staged(tensor)), target)
        part = self._exchanged(
            source,
            self._elements(tensor, input_split_sizes),
            types.raw(target),
            self._elements(output, output_split_sizes),
        )
        part = part._replace(finish=lambda: types.unstage(target, output))
        return self.begin("all_to_all_single", [tensor], [part], opts, result=[output])

    alltoall_base = all_to_all_single

    def _elements(self, tensor: torch.Tensor, splits: Sequence[int]) -> list[int]:
        """How many elements each rank's part has; no splits mean equal ones."""
        rows = tensor.shape[0] if tensor.dim() else 1
        splits = list(splits) or [rows // self.size()] * self.size()
        if len(splits) != self.size() or sum(splits) != rows:
            raise ValueError(
                f"{rows} rows cannot be split into {splits} for {self.size()} ranks: the splits "
                "must be one for each rank and add up to the rows"
            )
        width = tensor.numel() // rows if rows else 0
        return [split * width for split in splits]

    def _exchanged(
        self, source: torch.Tensor, sent: list[int], target: torch.Tensor, received: list[int]
    ) -> Part:
        if len(sent) != self.size() or len(received) != self.size():
            raise ValueError(f"{self.size()} ranks need {self.size()} inputs and outputs")

        def post(comm: MPI.Comm) -> MPI.Request:
            return comm.Ialltoallv(types.parts(source, sent), types.parts(target, received))

        return Part(post)
