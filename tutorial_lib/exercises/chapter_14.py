"""Checks of notebook 14: the same training, started in five ways."""

from __future__ import annotations

from typing import Any

from tutorial_lib.exercises.cases import call, expect, require
from tutorial_lib.exercises.verdict import exercise


@exercise("14.1")
def environment_of(answer: Any) -> None:
    """The answer gives a rank's environment from the hosts of all ranks."""
    for hosts in (["alpha", "alpha"], ["alpha", "beta"], ["beta", "alpha", "beta", "alpha"]):
        for rank, host in enumerate(hosts):
            expected = {
                "MASTER_ADDR": hosts[0],
                "MASTER_PORT": "29500",
                "RANK": str(rank),
                "WORLD_SIZE": str(len(hosts)),
                "LOCAL_RANK": str(hosts[:rank].count(host)),
                "LOCAL_WORLD_SIZE": str(hosts.count(host)),
            }
            found = call(answer, rank, list(hosts), 29500)
            case = f"rank {rank} of {hosts}"
            if isinstance(found, dict):
                for name in expected.keys() & found.keys():
                    require(
                        isinstance(found[name], str) or found[name] is ...,
                        f"{case}: {name!r} is {found[name]!r}; an environment holds strings only",
                    )
            expect(case, found, expected)


@exercise("14.2")
def seen_again(answer: Any) -> None:
    """The answer names the samples that DistributedSampler hands out more than once."""
    for size, world_size in [(12, 4), (10, 4), (11, 4), (7, 3), (3, 2), (2, 5), (5, 1)]:
        places = -(-size // world_size) * world_size
        order = [place % size for place in range(places)]
        expected = [sample for sample in range(size) if order.count(sample) > 1]
        dropped = list(range(size - size % world_size, size))
        found = call(answer, size, world_size)
        is_list = isinstance(found, list) and all(isinstance(sample, int) for sample in found)
        expect(
            f"{size} samples, {world_size} ranks",
            sorted(found) if is_list else found,
            expected,
            hint="These are left out with drop_last=True" if found == dropped else "",
        )
