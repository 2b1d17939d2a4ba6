"""A study of made-up measurements gives back what they were made of; and real ranks' add up."""

from __future__ import annotations

import json

import pytest

from tutorial_lib.distributed.cost_fit import Line, Timing
from tutorial_lib.distributed.cost_model import (
    DOUBLING,
    HALVING,
    PAIRWISE,
    Link,
    Network,
    all_reduce_s,
    collective_s,
)
from tutorial_lib.distributed.cost_on_hosts import Layout
from tutorial_lib.training.scaling_study import (
    ETHERNET,
    EXCHANGED,
    FEW_SAMPLES,
    SIZES,
    Round,
    Study,
    layouts,
    medians,
    round_from_json,
)
from tutorial_lib.training.step_model import StepModel, gan_updates
from tutorial_lib.training.step_time import StepTime

GAMMA = 2e-11
HERE = Network(
    {DOUBLING: Link(2e-5, 1e-9), HALVING: Link(3e-5, 2e-10), PAIRWISE: Link(3e-5, 4e-10)}, GAMMA
)
WORK = Line(0.004, 1e-5)
SIZE = 1024
GRADIENTS = (402_436, 402_436, 456_256)  # bytes: twice the discriminator's, and the generator's


def quantizing(shapes: object, bits: int, ranks: int) -> float:
    return 1e-4 * ranks


def made_up(ranks: int, cores: int = 8, slower: float = 1.0) -> Round:
    """What ranks would measure whose work and messages are just those of the model."""
    model, place = StepModel(WORK, quantizing=quantizing), Layout(1, ranks, HERE, HERE)
    steps = []
    for samples in dict.fromkeys((SIZE // ranks, SIZE, *FEW_SAMPLES)):
        step_s = slower * model.step_s(samples, place)
        moving_s = slower * model.communication_s(place)
        parts = (step_s, step_s - moving_s, 0.0, moving_s)
        steps.append(StepTime(ranks, samples * ranks, 32, *parts, sum(GRADIENTS)))
    if ranks == 1:
        return Round(steps, [], [], GAMMA)
    link = HERE.links[PAIRWISE]
    return Round(
        steps,
        [Timing(ranks, n, slower * all_reduce_s(n, ranks, HERE)) for n in SIZES],
        [Timing(ranks, n, slower * collective_s(PAIRWISE, n, ranks, link)) for n in EXCHANGED],
        GAMMA,
    )


@pytest.fixture(scope="module")
def study() -> Study:
    return Study(SIZE, 4, medians([made_up(1), made_up(2), made_up(4), made_up(8, slower=3.0)]))


def test_what_measurements_were_made_of_is_found(study: Study) -> None:
    assert study.counts == [1, 2, 4, 8]
    assert study.fitted_counts == [2, 4]  # the other four have no core
    assert study.model.work.fixed == pytest.approx(WORK.fixed, rel=0.01)
    assert study.model.work.slope == pytest.approx(WORK.slope, rel=0.01)
    for name, link in HERE.links.items():
        assert study.network.links[name].latency_s == pytest.approx(link.latency_s, rel=0.03)
    told = study.reduction_errors()
    assert told[4].largest < 0.03 < 0.5 < told[8].median
    assert study.step_errors()[4, 32].largest < 0.01
    assert study.held_out_errors()[4].largest < 0.05


def test_efficiency(study: Study) -> None:
    alone, both = study.step(1).seconds, study.step(2).seconds
    assert study.efficiency(1) == study.efficiency(1, is_weak=True) == 1
    assert study.efficiency(2) == pytest.approx(alone / both / 2)
    weak = study.step(2, is_weak=True)
    assert weak.minibatch_size == 2 * SIZE
    assert study.efficiency(2, is_weak=True) == pytest.approx(alone / weak.seconds)
    with pytest.raises(KeyError, match="3 ranks, minibatch 1024, 32 bits: not measured"):
        study.step(3)


def test_a_prediction_by_hand() -> None:
    """16 ranks on one host: work on 64 samples each, and three all-reduces."""
    model, place = StepModel(WORK, quantizing=quantizing), Layout(1, 16, HERE, HERE)
    expected = 0.004 + 64 * 1e-5
    for nbytes in GRADIENTS:  # halving: 8 messages, 15/8 of the bytes sent, 15/16 added
        expected += 8 * 3e-5 + nbytes * (15 / 8 * 2e-10 + 15 / 16 * GAMMA)
    assert model.step_s(64, place) == pytest.approx(expected)
    # Two exchanges of 15 messages each, and packing for each update.
    packed = (20_388, 20_388, 4 * (100 * 6 + 6 + 128 * 27 + 27))
    expected = sum(2 * (15 * 3e-5 + n * 15 / 16 * 4e-10) for n in packed) + 3 * 16e-4
    assert model.communication_s(place, bits=1) == pytest.approx(expected)


def test_one_rank_does_not_communicate() -> None:
    model, alone = StepModel(WORK, quantizing=quantizing), Layout(1, 1, HERE, HERE)
    for bits in (32, 1):
        assert model.communication_s(alone, bits) == 0
    assert model.samples_per_s(100, alone) == pytest.approx(100 / 0.005)


def test_more_bits_take_longer_on_a_slow_network() -> None:
    model = StepModel(WORK, quantizing=quantizing)
    slow = Network.of_one_link(Link(25e-6, 1e-7), GAMMA)
    times = [model.communication_s(Layout(8, 8, HERE, slow), bits, True) for bits in (1, 4, 16, 32)]
    assert times == sorted(times)


def test_layouts() -> None:
    places = list(layouts(HERE, ETHERNET, 8, [2, 8, 64]))
    assert [(place.hosts, place.ranks_per_host) for place in places] == [(1, 2), (1, 8), (8, 8)]
    assert places[2].between.links[DOUBLING].bytes_per_s == pytest.approx(1.25e9)
    with pytest.raises(ValueError, match="12 ranks on hosts of 8 each: take a multiple of 8"):
        list(layouts(HERE, ETHERNET, 8, [12]))


def test_weak_scaling_goes_on_where_strong_ends(study: Study) -> None:
    places = list(layouts(study.network, ETHERNET, 8, [8, 1024]))
    (few, many), (weak_few, weak_many) = study.predict(places), study.predict(places, is_weak=True)
    assert many.samples_per_rank == 1
    assert many.communication > few.communication
    assert weak_many.samples_per_s / weak_few.samples_per_s > 100
    assert many.samples_per_s / few.samples_per_s < 10


def test_medians_take_a_step_whole() -> None:
    one, two, three = made_up(2), made_up(2, slower=2.0), made_up(2, slower=9.0)
    found = medians([three, one, two])
    assert found.steps == two.steps
    assert [t.seconds for t in found.reductions] == [t.seconds for t in two.reductions]
    # By itself, each part's median would be another round's.
    rounds = [
        one._replace(steps=[one.steps[-1]._replace(seconds=s, compute_s=c, wait_s=w)])
        for s, c, w in ((5.0, 1.0, 4.0), (7.0, 0.5, 6.5), (9.0, 9.0, 0.0))
    ]
    (step,) = medians(rounds).steps
    assert (step.seconds, step.compute_s, step.wait_s) == (7.0, 0.5, 6.5)


def test_rounds_survive_json() -> None:
    one = made_up(2)
    assert round_from_json(json.loads(json.dumps(one.as_json()))) == one


def test_updates_are_the_gans_gradients() -> None:
    d, again, g = gan_updates()
    assert d == again
    assert (sum(map(_size, d)), sum(map(_size, g))) == (GRADIENTS[0] // 4, GRADIENTS[2] // 4)


def _size(shape: tuple[int, ...]) -> int:
    return shape[0] * (shape[1] if len(shape) > 1 else 1)


CODE = """
import sys
from tutorial_lib.distributed import session
from tutorial_lib.training.step_time import TimedGan, time_all_reduces, time_exchanges
with session.script() as ranks:
    gan = TimedGan(16, 1)
    step = gan.time(2)
    assert step[:3] == (2, 16, 1)
    assert abs(step.compute_s + step.wait_s + step.transfer_s - step.seconds) < 1e-6, step
    sums = time_all_reduces([1, 4096], turns=2)
    assert [t[:2] for t in sums] == [(2, 1), (2, 4096)]
    assert time_all_reduces([1], ranks=1) == []
    assert [t.nbytes for t in time_exchanges([1000], turns=2)] == [1000]
    for mine in (step, *sums):
        everyone = [None, None]
        import torch.distributed as dist
        dist.all_gather_object(everyone, mine)
        assert everyone[0] == everyone[1], everyone
    sent = [nbytes for name, nbytes in gan.messages() if name == "all_to_all_single"]
    assert len(sent) == 6
    if ranks.is_main:
        print("sent", step.bytes_sent)
"""


@pytest.mark.mpi
def test_real_ranks_agree_on_their_times(mpiexec) -> None:
    assert mpiexec(2, "-c", CODE, timeout_s=110).stdout.split() == ["sent", "57132.0"]
