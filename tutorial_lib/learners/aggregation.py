"""Gradients summed over the ranks in a few bits, with nothing lost for good."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from tutorial_lib.learners.quantization import ColumnQuantizer, PackedColumns, packed_words
from tutorial_lib.learners.transport import Transport

WORD_BYTES = 4


class Block:
    """Parameters whose matrices have equally many rows, side by side as one matrix.

    Args:
        rows: Of each matrix.
        columns: Of each matrix, by the parameter's number.
        bits: Of an element.
        transport: Between the ranks that share the columns.
        device: Of the parameters.
    """

    def __init__(
        self,
        rows: int,
        columns: dict[int, int],
        bits: int,
        transport: Transport,
        device: torch.device,
    ) -> None:
        self.rows = rows
        self.words = packed_words(rows, bits)
        self.spans: dict[int, slice] = {}
        self.columns = 0
        for number, count in columns.items():
            self.spans[number] = slice(self.columns, self.columns + count)
            self.columns += count
        self._world_size = transport.world_size
        self.own = self.stripes(transport.rank)
        self.own_columns = sum(stripe.stop - stripe.start for stripe in self.own)
        self.whole = ColumnQuantizer(bits, rows, self.columns, device)
        self.stripe = ColumnQuantizer(bits, rows, self.own_columns, device)
        self.residual = torch.zeros(rows, self.columns, device=device)
        self.stripe_residual = torch.zeros(rows, self.own_columns, device=device)
        self.total = torch.empty_like(self.stripe_residual)

    def stripes(self, rank: int) -> list[slice]:
        """Return the columns that a rank owns, of each matrix a contiguous part."""
        stripes = []
        for span in self.spans.values():
            own = stripe_of(span.stop - span.start, self._world_size, rank)
            stripes.append(slice(span.start + own.start, span.start + own.stop))
        return stripes

    def places(self, rank: int) -> Tensor:
        """Return where in the flattened packed block a rank's columns are."""
        places = torch.arange(self.words * self.columns).view(self.words, self.columns)
        return torch.cat([places[:, stripe] for stripe in self.stripes(rank)], 1).flatten()


class QuantizedAggregation:
    """Sums gradients over the ranks, a few bits an element, and remembers what the bits left out.

    Each rank quantises its gradients' columns and sends every other rank those that it owns: its
    stripe. The owner sums them, quantises the sums and sends them to all. What either quantisation
    left out is added before the next one, so that it arrives later instead of never.

    A parameter's matrix has the rows of its dimension 0, and the rest as columns; a vector is one
    column.

    Args:
        parameters: Whose gradients are summed, in the same order on every rank.
        bits: 1, 2, 4, 8 or 16.
        transport: Between the ranks.

    Raises:
        ValueError: Less than one bit: give one of the above.
        RuntimeError: Another number of bits: give one of the above.

    **Source:** CNTK's ``QuantizedDataParallelDistributedLearner``.
    """

    def __init__(self, parameters: Sequence[Tensor], bits: int, transport: Transport) -> None:
        self.parameters = list(parameters)
        self.bytes_sent = 0
        self._transport = transport
        device = self.parameters[0].device
        self._blocks = list(self._make_blocks(bits, device))
        size = transport.world_size
        by_rank = [self._places(rank) for rank in range(size)]
        # Where each word is that goes to rank 0, to rank 1, ...; and back from their order.
        self._by_rank = torch.cat(by_rank).to(device)
        self._back = self._by_rank.argsort()
        self._counts = [len(places) for places in by_rank]
        own = self._counts[transport.rank]
        self._own_counts = [own] * size
        # Memory that every call uses again, and the packed columns in it.
        words = torch.empty(sum(self._counts), dtype=torch.int32, device=device)
        self._words, self._sorted = words, torch.empty_like(words)
        self._received, self._totals = words.new_empty(size, own), words.new_empty(own)
        self._packed = self._split(self._words, is_stripe=False)
        self._packed_parts = [self._split(part, is_stripe=True) for part in self._received]
        self._packed_totals = self._split(self._totals, is_stripe=True)

    def aggregate(self, gradients: Sequence[Tensor]) -> None:
        """Replace gradients by what all ranks agree is their sum.

        Args:
            gradients: Of ``parameters``, in their order and shapes.

        **Distributed:** collective; afterwards the gradients are equal on all ranks.
        """
        for block, packed in zip(self._blocks, self._packed, strict=True):
            for number, span in block.spans.items():
                block.residual[:, span].add_(gradients[number].reshape(block.rows, -1))
            block.residual.sub_(block.whole.quantize(block.residual, packed))
        torch.index_select(self._words, 0, self._by_rank, out=self._sorted)
        self._exchange(self._received.view(-1), self._sorted, self._own_counts, self._counts)
        # In CNTK's order, or a value at the edge of two codes may take the other one.
        first, *others = self._packed_parts[self._rank :] + self._packed_parts[: self._rank]
        for block, packed in zip(self._blocks, first, strict=True):
            block.total.copy_(block.stripe.dequantize(packed))
        for parts in others:
            for block, packed in zip(self._blocks, parts, strict=True):
                block.total.add_(block.stripe.dequantize(packed))
        for block, packed in zip(self._blocks, self._packed_totals, strict=True):
            block.stripe_residual.add_(block.total)
            block.stripe_residual.sub_(block.stripe.quantize(block.stripe_residual, packed))
        totals = self._totals.repeat(self._transport.world_size)
        self._exchange(self._sorted, totals, self._counts, self._own_counts)
        torch.index_select(self._sorted, 0, self._back, out=self._words)
        for block, packed in zip(self._blocks, self._packed, strict=True):
            restored = block.whole.dequantize(packed)
            for number, span in block.spans.items():
                gradient = gradients[number]
                gradient.copy_(restored[:, span].reshape(gradient.shape))

    def is_of(self, parameters: Sequence[Tensor]) -> bool:
        """Whether it aggregates just these parameters, in this order."""
        return list(map(id, parameters)) == list(map(id, self.parameters))

    def adopt(self, other: QuantizedAggregation) -> None:
        """Take over the residuals of the parameters that another aggregation had before."""
        theirs = {id(other.parameters[number]): parts for number, *parts in other._parts()}
        for number, residual, stripe in self._parts():
            if id(self.parameters[number]) in theirs:
                their_residual, their_stripe = theirs[id(self.parameters[number])]
                residual.copy_(their_residual)
                stripe.copy_(their_stripe)

    def state_dict(self) -> dict[str, list[Tensor]]:
        """Return what was left out so far, of all ranks.

        Returns:
            ``local``: for each parameter (ranks, rows, columns), what each rank left out of its
            own gradients; ``sums``: for each parameter (rows, columns), what was left out of the
            sums.

        **Distributed:** collective; equal on all ranks.
        """
        local: dict[int, Tensor] = {}
        sums: dict[int, Tensor] = {}
        for number, residual, stripe in self._parts():
            local[number] = self._transport.all_gather(residual.contiguous())
            everywhere = torch.zeros_like(residual)
            everywhere[:, self._own_columns(residual)] = stripe
            self._transport.all_reduce(everywhere)
            sums[number] = everywhere
        numbers = sorted(local)
        return {"local": [local[n] for n in numbers], "sums": [sums[n] for n in numbers]}

    def load_state_dict(self, state: dict[str, list[Tensor]]) -> None:
        """Go on from saved residuals, also with another number of ranks.

        Ranks that are no more leave their residuals to others; new ranks begin with none.

        Args:
            state: From ``state_dict``.

        Raises:
            ValueError: The state is of other parameters: build the learner as it was.
        """
        parts = sorted(self._parts(), key=lambda part: part[0])
        wanted = [tuple(residual.shape) for _, residual, _ in parts]
        found = [tuple(total.shape) for total in state["sums"]]
        if wanted != found:
            raise ValueError(f"the residuals' matrices are {found}, the parameters' are {wanted}")
        saved = zip(parts, state["local"], state["sums"], strict=True)
        for (_, residual, stripe), local, total in saved:
            residual.copy_(local[self._transport.rank :: self._transport.world_size].sum(0))
            stripe.copy_(total[:, self._own_columns(residual)])

    def _parts(self) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Each parameter's number, residual and stripe's residual, as views of the blocks'."""
        for block in self._blocks:
            widths = [own.stop - own.start for own in block.own]
            stripes = block.stripe_residual.split(widths, 1)
            for (number, span), stripe in zip(block.spans.items(), stripes, strict=True):
                yield number, block.residual[:, span], stripe

    def _own_columns(self, matrix: Tensor) -> slice:
        return stripe_of(matrix.shape[1], self._transport.world_size, self._rank)

    @property
    def _rank(self) -> int:
        return self._transport.rank

    def _make_blocks(self, bits: int, device: torch.device) -> Iterator[Block]:
        columns: dict[int, dict[int, int]] = {}
        for number, parameter in enumerate(self.parameters):
            rows = parameter.shape[0] if parameter.dim() else 1
            if parameter.numel():
                columns.setdefault(rows, {})[number] = parameter.numel() // rows
        for rows, counts in columns.items():
            yield Block(rows, counts, bits, self._transport, device)

    def _places(self, rank: int) -> Tensor:
        """Return where in all flattened packed blocks a rank's columns are."""
        places, start = [], 0
        for block in self._blocks:
            places.append(start + block.places(rank))
            start += block.words * block.columns
        return torch.cat(places)

    def _split(self, words: Tensor, is_stripe: bool) -> list[PackedColumns]:
        """Return the packed columns of each block, or of this rank's stripe of each."""
        widths = [block.own_columns if is_stripe else block.columns for block in self._blocks]
        sizes = [block.words * width for block, width in zip(self._blocks, widths, strict=True)]
        return [
            PackedColumns(part.view(block.words, width))
            for part, block, width in zip(words.split(sizes), self._blocks, widths, strict=True)
        ]

    def _exchange(
        self, received: Tensor, sent: Tensor, counts: list[int], sent_counts: list[int]
    ) -> None:
        self._transport.all_to_all(received, sent, counts, sent_counts)
        self.bytes_sent += (sent.numel() - sent_counts[self._rank]) * WORD_BYTES


def stripe_of(columns: int, world_size: int, rank: int) -> slice:
    """Return which columns of a matrix a rank owns."""
    each, rest = divmod(columns, world_size)
    start = each * rank + min(rest, rank)
    return slice(start, start + each + (rank < rest))
