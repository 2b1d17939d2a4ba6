"""Gradients summed over the ranks in a few bits, with nothing lost for good."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from tutorial_lib.learners.quantization import ColumnQuantizer
from tutorial_lib.learners.transport import Transport

WORD_BYTES = 4


class Block:
    """Parameters whose matrices have equally many rows, side by side as one matrix.

    Args:
        rows: Of each matrix.
        columns: Of each matrix, by the parameter's number.
        words: Words of a packed column.
        transport: Between the ranks that share the columns.
    """

    def __init__(
        self, rows: int, columns: dict[int, int], words: int, transport: Transport
    ) -> None:
        self.rows = rows
        self.words = words
        self.spans: dict[int, slice] = {}
        self.columns = 0
        for number, count in columns.items():
            self.spans[number] = slice(self.columns, self.columns + count)
            self.columns += count
        self._world_size = transport.world_size
        self.own = self.stripes(transport.rank)
        self.own_columns = sum(stripe.stop - stripe.start for stripe in self.own)

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
        self._quantizer = ColumnQuantizer(bits)
        self._blocks = list(self._make_blocks())
        zeros = self.parameters[0].new_zeros
        self._residuals = [
            zeros(block.rows, block.columns, dtype=torch.float32) for block in self._blocks
        ]
        self._stripe_residuals = [
            zeros(block.rows, block.own_columns, dtype=torch.float32) for block in self._blocks
        ]
        by_rank = [self._places(rank) for rank in range(transport.world_size)]
        self._counts = [len(places) for places in by_rank]
        device = self.parameters[0].device
        # From the order of parameters to that of ranks, without this rank; and back, with it.
        self._for_others = torch.cat([*by_rank[: self._rank], *by_rank[self._rank + 1 :]]).to(
            device
        )
        self._back = torch.cat(by_rank).argsort().to(device)

    def aggregate(self, gradients: Sequence[Tensor]) -> None:
        """Replace gradients by what all ranks agree is their sum.

        Args:
            gradients: Of ``parameters``, in their order and shapes.

        **Distributed:** collective; afterwards the gradients are equal on all ranks.
        """
        packed, totals = [], []
        for block, residual in zip(self._blocks, self._residuals, strict=True):
            for number, span in block.spans.items():
                residual[:, span].add_(gradients[number].reshape(block.rows, -1))
            words, restored = self._quantizer.quantize(residual)
            residual.sub_(restored)
            packed.append(words.flatten())
            totals.append(_columns(restored, block.own))
        received = self._exchange_stripes(torch.cat(packed))
        packed = []
        parts = zip(self._blocks, totals, self._stripe_residuals, received, strict=True)
        for block, total, residual, theirs in parts:
            for restored in self._quantizer.dequantize(theirs, block.rows):
                total.add_(restored)
            total.add_(residual)
            words, restored = self._quantizer.quantize(total)
            torch.sub(total, restored, out=residual)
            packed.append(words.flatten())
        gathered = self._gather_stripes(torch.cat(packed))
        for block, words in zip(self._blocks, gathered, strict=True):
            restored = self._quantizer.dequantize(words, block.rows)
            for number, span in block.spans.items():
                gradient = gradients[number]
                gradient.copy_(restored[:, span].reshape(gradient.shape))

    def is_of(self, parameters: Sequence[Tensor]) -> bool:
        """Whether it aggregates just these parameters, in this order."""
        return list(map(id, parameters)) == list(map(id, self.parameters))

    def adopt(self, other: QuantizedAggregation) -> None:
        """Take over the residuals of the parameters that another aggregation had before."""
        theirs = {id(other.parameters[n]): parts for n, *parts in other._parts()}
        for number, *mine in self._parts():
            for part, value in zip(mine, theirs.get(id(self.parameters[number]), ()), strict=False):
                part.copy_(value)

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
        blocks = zip(self._blocks, self._residuals, self._stripe_residuals, strict=True)
        for block, residual, stripe in blocks:
            widths = [own.stop - own.start for own in block.own]
            for (number, span), own_part in zip(
                block.spans.items(), stripe.split(widths, 1), strict=True
            ):
                yield number, residual[:, span], own_part

    def _own_columns(self, matrix: Tensor) -> slice:
        return stripe_of(matrix.shape[1], self._transport.world_size, self._rank)

    @property
    def _rank(self) -> int:
        return self._transport.rank

    def _make_blocks(self) -> Iterator[Block]:
        columns: dict[int, dict[int, int]] = {}
        for number, parameter in enumerate(self.parameters):
            rows = parameter.shape[0] if parameter.dim() else 1
            if parameter.numel():
                columns.setdefault(rows, {})[number] = parameter.numel() // rows
        for rows, counts in columns.items():
            yield Block(rows, counts, self._quantizer.words(rows), self._transport)

    def _places(self, rank: int) -> Tensor:
        """Return where in all flattened packed blocks a rank's columns are."""
        places, start = [], 0
        for block in self._blocks:
            places.append(start + block.places(rank))
            start += block.words * block.columns
        return torch.cat(places)

    def _exchange_stripes(self, packed: Tensor) -> list[Tensor]:
        """Give every rank its stripe; return mine from the others, (others, words, columns)."""
        own, size = self._counts[self._rank], self._transport.world_size
        received = self._send(
            packed[self._for_others],
            self._without_own(self._counts),
            self._without_own([own] * size),
        ).view(size - 1, own)
        sizes = [block.words * block.own_columns for block in self._blocks]
        return [
            part.reshape(size - 1, block.words, block.own_columns)
            for part, block in zip(received.split(sizes, dim=1), self._blocks, strict=True)
        ]

    def _gather_stripes(self, packed: Tensor) -> list[Tensor]:
        """Give every rank my stripe; return all of them, (words, columns) for each block."""
        size = self._transport.world_size
        received = self._send(
            packed.repeat(size - 1),
            self._without_own([len(packed)] * size),
            self._without_own(self._counts),
        )
        before = sum(self._counts[: self._rank])
        gathered = torch.cat([received[:before], packed, received[before:]])[self._back]
        sizes = [block.words * block.columns for block in self._blocks]
        return [
            part.view(block.words, block.columns)
            for part, block in zip(gathered.split(sizes), self._blocks, strict=True)
        ]

    def _send(self, sent: Tensor, sent_counts: list[int], counts: list[int]) -> Tensor:
        self.bytes_sent += sent.numel() * WORD_BYTES
        return self._transport.all_to_all(sent, sent_counts, counts)

    def _without_own(self, counts: list[int]) -> list[int]:
        return [0 if rank == self._rank else count for rank, count in enumerate(counts)]


def _columns(matrix: Tensor, stripes: list[slice]) -> Tensor:
    return torch.cat([matrix[:, stripe] for stripe in stripes], 1)


def stripe_of(columns: int, world_size: int, rank: int) -> slice:
    """Return which columns of a matrix a rank owns."""
    each, rest = divmod(columns, world_size)
    start = each * rank + min(rest, rank)
    return slice(start, start + each + (rank < rest))
