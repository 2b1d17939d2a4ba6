import pytest
import torch
from torch import Tensor

from tutorial_lib.learners.aggregation import QuantizedAggregation, stripe_of
from tutorial_lib.learners.quantization import LEGAL_BITS, packed_words
from tutorial_lib.learners.simulation import run_ranks
from tutorial_lib.learners.transport import current_transport

SHAPES = [(8, 5), (8,), (3, 2, 2), (), (1, 4)]
every_width = pytest.mark.parametrize("bits", LEGAL_BITS)


def parameters() -> list[Tensor]:
    return [torch.zeros(shape) for shape in SHAPES]


def gradients(rank: int, step: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1000 * rank + step)
    return [torch.randn(shape, generator=generator) for shape in SHAPES]


def flat(tensors: list[Tensor]) -> Tensor:
    return torch.cat([tensor.flatten() for tensor in tensors])


def left_out(state: dict[str, list[Tensor]]) -> Tensor:
    local = torch.cat([part.sum(0).flatten() for part in state["local"]])
    return local + flat(state["sums"])


@every_width
@pytest.mark.parametrize("world_size", [2, 3, 7])
def test_all_that_was_given_has_arrived_or_is_remembered(bits: int, world_size: int) -> None:
    def run(rank: int) -> tuple[Tensor, Tensor]:
        aggregation = QuantizedAggregation(parameters(), bits, current_transport())
        arrived = torch.zeros(sum(tensor.numel() for tensor in parameters()))
        for step in range(5):
            mine = gradients(rank, step)
            aggregation.aggregate(mine)
            arrived += flat(mine)
        return arrived, left_out(aggregation.state_dict())

    given = sum(flat(gradients(rank, step)) for rank in range(world_size) for step in range(5))
    for arrived, remembered in run_ranks(world_size, run):
        torch.testing.assert_close(arrived + remembered, given, rtol=0, atol=1e-3)


@every_width
def test_all_ranks_agree(bits: int) -> None:
    def run(rank: int) -> Tensor:
        aggregation = QuantizedAggregation(parameters(), bits, current_transport())
        mine = gradients(rank, 0)
        aggregation.aggregate(mine)
        return flat(mine)

    first, *others = run_ranks(3, run)
    assert all(torch.equal(first, other) for other in others)


@pytest.mark.parametrize("world_size", [1, 2, 3, 5, 9])
def test_stripes_are_disjoint_complete_and_even(world_size: int) -> None:
    for columns in range(12):
        stripes = [stripe_of(columns, world_size, rank) for rank in range(world_size)]
        owned = [number for stripe in stripes for number in range(columns)[stripe]]
        assert owned == list(range(columns))
        widths = [stripe.stop - stripe.start for stripe in stripes]
        assert max(widths) - min(widths) <= 1
        assert widths == sorted(widths, reverse=True)


@every_width
def test_what_is_sent_is_counted(bits: int) -> None:
    def run(rank: int) -> int:
        aggregation = QuantizedAggregation([torch.zeros(64, 10)], bits, current_transport())
        aggregation.aggregate([torch.randn(64, 10)])
        return aggregation.bytes_sent

    # Half of the columns to the other rank, and half of the sums back.
    assert run_ranks(2, run) == [4 * packed_words(64, bits) * 10] * 2


def test_one_bit_takes_a_twentieth_of_a_step_of_the_gan() -> None:
    generator = [(128, 100), (128,), (784, 128), (784,)]
    discriminator = [(128, 784), (128,), (1, 128), (1,)]

    def run(rank: int) -> tuple[int, int]:
        sent = full = 0
        for shapes in (discriminator, discriminator, generator):
            mine = [torch.randn(shape) for shape in shapes]
            aggregation = QuantizedAggregation(mine, 1, current_transport())
            aggregation.aggregate(mine)
            sent += aggregation.bytes_sent
            full += flat(mine).nbytes
        return sent, full

    for sent, full in run_ranks(2, run):
        assert sent <= full / 20


@pytest.mark.parametrize("new_size", [2, 3, 5])
def test_residuals_survive_another_number_of_ranks(new_size: int) -> None:
    def first(rank: int) -> dict[str, list[Tensor]]:
        aggregation = QuantizedAggregation(parameters(), 1, current_transport())
        aggregation.aggregate(gradients(rank, 0))
        return aggregation.state_dict()

    saved = run_ranks(3, first)[0]

    def second(rank: int) -> Tensor:
        aggregation = QuantizedAggregation(parameters(), 1, current_transport())
        aggregation.load_state_dict(saved)
        return left_out(aggregation.state_dict())

    for found in run_ranks(new_size, second):
        torch.testing.assert_close(found, left_out(saved), rtol=0, atol=1e-6)


def test_resumed_equals_uninterrupted() -> None:
    def run(rank: int) -> tuple[Tensor, Tensor]:
        whole = QuantizedAggregation(parameters(), 2, current_transport())
        whole.aggregate(gradients(rank, 0))
        resumed = QuantizedAggregation(parameters(), 2, current_transport())
        resumed.load_state_dict(whole.state_dict())
        mine, theirs = gradients(rank, 1), gradients(rank, 1)
        whole.aggregate(mine)
        resumed.aggregate(theirs)
        return flat(mine), flat(theirs)

    for mine, theirs in run_ranks(3, run):
        assert torch.equal(mine, theirs)


def test_parameters_may_be_grouped_anew() -> None:
    def run(rank: int) -> list[Tensor]:
        tensors = parameters()
        whole = QuantizedAggregation(tensors, 1, current_transport())
        whole.aggregate(gradients(rank, 0))
        parts = [
            QuantizedAggregation(share, 1, current_transport())
            for share in (tensors[3:], tensors[:3])
        ]
        for part in parts:
            part.adopt(whole)
        mine, theirs = gradients(rank, 1), gradients(rank, 1)
        whole.aggregate(mine)
        parts[0].aggregate(theirs[3:])
        parts[1].aggregate(theirs[:3])
        return [flat(mine), flat(theirs)]

    for mine, theirs in run_ranks(2, run):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-6)


def test_other_parameters_residuals_are_refused() -> None:
    def run(rank: int) -> None:
        saved = QuantizedAggregation([torch.zeros(2, 3)], 1, current_transport()).state_dict()
        QuantizedAggregation([torch.zeros(3, 2)], 1, current_transport()).load_state_dict(saved)

    with pytest.raises(ValueError, match="residuals"):
        run_ranks(2, run)
