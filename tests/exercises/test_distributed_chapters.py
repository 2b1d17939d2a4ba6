"""The checks of chapters 03 to 05 accept right answers in other words, and name mistakes."""

from collections import Counter

import numpy as np
import pytest
import torch
from torch.utils.data.distributed import DistributedSampler

from tutorial_lib.data.noise import NoiseSource
from tutorial_lib.data.partition import partition_bounds
from tutorial_lib.exercises.verdict import verdict

ALONE = {
    "generator(noise)": True,
    "wrapped(noise)": False,
    "wrapped.module(noise)": True,
    "dist.all_reduce(loss)": False,
    "save_generator(file, generator)": True,
    "DistributedDataParallel(generator)": False,
}


def shares(size, world_size, rank, seed):
    return NoiseSource(100, seed).next(size, world_size, rank)


def same_everywhere(size, world_size, rank, seed):
    start, stop = partition_bounds(size, world_size, rank)
    return np.random.default_rng(seed).uniform(-1, 1, (stop - start, 100))


def own_seed(size, world_size, rank, seed):
    return same_everywhere(size, world_size, rank, seed + rank)


def floored(size, world_size, rank, seed):
    whole = np.random.default_rng(seed).uniform(-1, 1, (size, 100))
    count = size // world_size
    return whole[rank * count : (rank + 1) * count]


def half_range(size, world_size, rank, seed):
    return np.random.default_rng(seed).uniform(0, 1, (size, 100))


def all_with_fewest(places):
    fewest = min(count for count, _ in places.values())
    return sorted(rank for rank, (count, _) in places.items() if count == fewest)


def behind(places):
    most = max(places.values())[0]
    return [rank for rank in all_with_fewest(places) if places[rank][0] < most]


def not_waiting(places):
    return sorted(rank for rank, (_, is_waiting) in places.items() if not is_waiting)


def environment(rank, hosts, port):
    numbers = {"MASTER_PORT": port, "RANK": rank, "WORLD_SIZE": len(hosts)}
    numbers["LOCAL_RANK"] = sum(host == hosts[rank] for host in hosts[:rank])
    numbers["LOCAL_WORLD_SIZE"] = hosts.count(hosts[rank])
    return {"MASTER_ADDR": hosts[0]} | {name: str(number) for name, number in numbers.items()}


def one_host(rank, hosts, port):
    return environment(rank, hosts, port) | {"LOCAL_RANK": str(rank)}


def met_again(size, world_size):
    samplers = (DistributedSampler(range(size), world_size, n, False) for n in range(world_size))
    counts = Counter(sample for sampler in samplers for sample in sampler)
    return [sample for sample, count in counts.items() if count > 1]


def filled(slots, n):
    return [host for host, count in slots.items() for _ in range(count)][:n]


def dealt_out(slots, n):
    left, homes = dict(slots), []
    while len(homes) < n:
        for host in slots:
            if left[host]:
                left[host] -= 1
                homes.append(host)
    return homes[:n]


def ring(nbytes, ranks, latency_s, bytes_per_s):
    return 2 * (ranks - 1) * (latency_s + nbytes / (ranks * bytes_per_s))


def speed_up(step_s, is_weak):
    return {n: step_s[1] / seconds for n, seconds in step_s.items()}


def efficiency(step_s, is_weak):
    return {n: s / (1 if is_weak else n) for n, s in speed_up(step_s, is_weak).items()}


def compare_first_two(logs):
    first, second = list(logs.values())[:2]
    return next((i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), -1)


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("03.1", {0: 1, 1: torch.tensor(1)}),
        ("03.1", {0: 0}),
        ("03.1", dict.fromkeys(range(5), 4)),
        ("04.1", shares),
        ("04.2", lambda means, counts: np.average(means, axis=0, weights=counts)),
        ("05.1", ALONE),
        ("05.2", lambda pixels: ((pixels + 1) * 127.5 + 0.5).astype(np.uint8)),
        ("10.1", behind),
        ("10.2", {0: 5, 1: torch.tensor(5)}),
        ("10.2", dict.fromkeys(range(4), 3)),
        ("13.1", filled),
        ("13.2", ring),
        ("13.3", efficiency),
        ("14.1", environment),
        ("14.2", met_again),
    ],
)
def test_other_right_answers_pass(name, answer):
    assert str(verdict(name, answer)) == "PASS"


@pytest.mark.parametrize(
    ("name", "answer", "told"),
    [
        ("03.1", {0: 7.0, 1: 7.0}, "This is the best score; whose is it?"),
        ("03.1", {0: 1, 1: 0}, "best on rank 1, with scores [3.0, 7.0]: expected 1, found 0"),
        ("03.1", 1, "ranks.pull('best')"),
        ("03.2", compare_first_two, "a log that ends early"),
        ("03.2", lambda logs: 0, "equal logs"),
        ("04.1", same_everywhere, "1024 rows, 2 ranks: only 512 of 1024 rows are distinct"),
        ("04.1", own_seed, "They should be the rows that a single rank would get"),
        ("04.1", floored, "1024 rows, 3 ranks: expected 1024 rows in all, found 1023"),
        ("04.1", half_range, "values must fill -1 to 1"),
        ("04.1", lambda *_: "noise", "expected an array or a tensor"),
        ("04.1", lambda *_: np.zeros(3), "expected shape ('n', 100), found (3,)"),
        ("04.2", lambda means, counts: means.mean(axis=0), "This is the mean of the means"),
        ("04.2", lambda means, counts: means.sum(axis=0), "at [0] expected"),
        ("05.1", {**ALONE, "wrapped(noise)": True}, "'wrapped(noise)': no, it is a collective"),
        ("05.1", {**ALONE, "generator(noise)": ...}, "'generator(noise)' is still ..."),
        ("05.1", {}, "'generator(noise)' is missing"),
        ("05.2", lambda pixels: (pixels * 255).clip(0).astype(np.uint8), "was clipped"),
        ("05.2", lambda pixels: ((pixels + 1) * 127.5).astype(np.uint8), "Round to the nearest"),
        ("05.2", lambda pixels: np.rint((pixels + 1) * 127.5), "expected the type uint8"),
        ("10.1", not_waiting, "one rank waits in an earlier collective"),
        ("10.1", not_waiting, "A rank can wait and hold up others all the same"),
        ("10.1", all_with_fewest, "all ranks are in the same collective"),
        (
            "10.2",
            {0: 7, 1: 5},
            "with batches [7, 5]: expected 5, found 7. This is how many batches",
        ),
        ("10.2", {0: 12, 1: 12}, "This is the sum of all ranks' batches"),
        ("10.2", 5, "ranks.pull('steps')"),
        ("13.1", dealt_out, "This deals ranks out by node"),
        ("13.1", lambda slots, n: list(slots), "4 ranks on {'node1': 2, 'node2': 2}: expected 4"),
        ("13.2", lambda n, p, a, b: ring(n, p, a, b) / 2, "Each part goes round twice"),
        ("13.2", lambda n, p, a, b: 2 * (p - 1) * (a + n / b), "holds one part, not the whole"),
        ("13.2", lambda n, p, a, b: ring(n, p, 0, b), "0 bytes, 4 ranks, 0.001 s"),
        ("13.3", speed_up, "strong, seconds {1: 0.8, 2: 0.5, 4: 0.4}: 2: expected 0.8"),
        ("13.3", speed_up, "This is the speed-up"),
        ("13.3", lambda s, weak: efficiency(s, False), "n ranks do n times the work"),
        ("13.3", lambda s, weak: {}, "1 is missing"),
        ("14.1", one_host, "rank 1 of ['alpha', 'beta']: 'LOCAL_RANK': expected '0', found '1'"),
        ("14.1", lambda rank, *_: {"RANK": rank}, "'RANK' is 0; an environment holds strings"),
        ("14.1", lambda *_: {}, "'MASTER_ADDR' is missing"),
        ("14.2", lambda n, size: list(range(n - n % size, n)), "are left out with drop_last"),
        ("14.2", lambda n, size: list(range(-n % size)), "2 samples, 5 ranks: expected 2 values"),
    ],
)
def test_mistake_is_told(name, answer, told):
    found = verdict(name, answer)
    assert found.status == "NOT YET"
    assert told in found.detail
