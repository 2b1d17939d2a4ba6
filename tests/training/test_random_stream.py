import torch

from tutorial_lib.training.random_stream import RandomStream

CPU = torch.device("cpu")


def draw(stream):
    with stream.active():
        return torch.rand(3)


def test_ranks_and_seeds_have_streams_of_their_own():
    draws = [draw(RandomStream(seed, rank, CPU)) for seed, rank in [(0, 0), (0, 1), (1, 0)]]
    assert len({tuple(d.tolist()) for d in draws}) == 3
    assert torch.equal(draw(RandomStream(0, 1, CPU)), draws[1])


def test_inside_and_outside_do_not_disturb_each_other():
    torch.manual_seed(4)
    expected = torch.rand(2, 3)
    alone = RandomStream(7, 0, CPU)
    numbers = torch.stack([draw(alone), draw(alone)])
    torch.manual_seed(4)
    stream = RandomStream(7, 0, CPU)
    mixed = [torch.rand(3), draw(stream), torch.rand(3), draw(stream)]
    assert torch.equal(torch.stack(mixed[::2]), expected)
    assert torch.equal(torch.stack(mixed[1::2]), numbers)


def test_state_goes_on_with_the_next_number():
    stream = RandomStream(0, 0, CPU)
    draw(stream)
    state = stream.state_dict()
    expected = draw(stream)
    other = RandomStream(5, 0, CPU)
    other.load_state_dict(state)
    assert torch.equal(draw(other), expected)
