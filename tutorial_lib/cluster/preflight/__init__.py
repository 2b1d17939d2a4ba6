"""Are all hosts ready? Asked of every rank before anything is trained; a line for each check.

In a notebook ``ranks.preflight()`` or ``%ranks_preflight``; in a shell ``gan-tutorial cluster
preflight``; in a job of your own:

    mpiexec -n 4 python -m tutorial_lib.cluster.preflight --data-dir DIR --checkpoint-dir DIR
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from tutorial_lib.cluster.preflight import doors as host_doors
from tutorial_lib.cluster.preflight import facts as host_facts
from tutorial_lib.cluster.preflight import findings
from tutorial_lib.cluster.preflight.facts import Facts
from tutorial_lib.cluster.values import decode
from tutorial_lib.display.findings import Finding, Report

STEP_S = 90.0  # a rank gives up its looks before
KNOCK_S = 30.0  # a name that does not resolve takes long


@dataclass(frozen=True)
class Failure:
    """What a rank that failed has to say instead of a value."""

    problem: str


def value_of(answer: dict[str, Any] | None, seconds: float) -> Any:
    """What a rank's answer says.

    Args:
        answer: As those of ``cell``; None if there is none.
        seconds: How long it was waited for.

    Returns:
        The value, or a ``Failure``.
    """
    if answer is None:
        return Failure(f"it did not answer within {seconds:.0f} s")
    if answer["status"] != "ok":
        return Failure(f"{answer['name']}: {answer['message']}")
    return decode(answer)


# Calls a function on every rank, with these arguments and within so many seconds.
Everyone = Callable[..., dict[int, Any]]


def examine(everyone: Everyone, data_dir: str = "", checkpoint_dir: str = ".") -> Report:
    """Have all ranks look at their hosts and at each other, and judge what they found.

    Args:
        everyone: ``everyone(seconds, function, *arguments)`` calls a function of this package on
            every rank and returns by rank what it returned, or a ``Failure``.
        data_dir: A folder of data that every rank must have; "" for MNIST as it comes with the
            package.
        checkpoint_dir: Where rank 0 will write.

    Returns:
        A line for each check.
    """
    return Report(_findings(everyone, data_dir, checkpoint_dir))


def _findings(everyone: Everyone, data_dir: str, checkpoint_dir: str) -> Iterator[Finding]:
    found = everyone(STEP_S, host_facts.look, data_dir, checkpoint_dir)
    if absent := _failures(found):
        yield findings.absent(absent)
        return
    facts = _number([found[rank] for rank in sorted(found)])
    yield findings.hosts(facts)
    yield findings.versions(facts)

    leaders = [min(f.rank for f in facts if f.host == h) for h in {f.host for f in facts}]
    token = secrets.token_hex(16)
    opened = everyone(KNOCK_S, _open_door, sorted(leaders), token)
    try:
        doors = [door for door in opened.values() if isinstance(door, host_doors.Door)]
        heard = everyone(KNOCK_S, _knock, doors, token)
    finally:
        closed = everyone(KNOCK_S, _close_door)
    if absent := _failures(closed) | _failures(heard) | _failures(opened):  # the first counts
        yield findings.absent(dict(sorted(absent.items())))
    knocks = [one for tries in heard.values() if isinstance(tries, list) for one in tries]
    judged = [door for door in doors if not isinstance(heard.get(door.rank), Failure)]
    if len(judged) > 1 or len(leaders) == 1:  # else there is nothing to compare
        yield findings.ports(judged, knocks)
        yield findings.clocks(judged, knocks)

    yield findings.data(facts, data_dir)
    yield findings.checkpoints(facts, checkpoint_dir)
    yield findings.gpus(facts)


def _number(facts: list[Facts]) -> list[Facts]:
    """Give the ranks of each host their numbers there."""
    homes = [fact.host for fact in facts]
    return [replace(f, local_rank=homes[:at].count(f.host)) for at, f in enumerate(facts)]


def _failures(answers: dict[int, Any]) -> dict[int, str]:
    return {
        rank: answer.problem
        for rank, answer in sorted(answers.items())
        if isinstance(answer, Failure)
    }


def _rank() -> int:
    from mpi4py import MPI

    return int(MPI.COMM_WORLD.rank)


def _open_door(leaders: list[int], token: str) -> host_doors.Door | None:
    return host_doors.open_door(_rank(), leaders, token)


def _knock(doors: list[host_doors.Door], token: str) -> list[host_doors.Knock]:
    return host_doors.knock(_rank(), doors, token)


def _close_door() -> None:
    host_doors.close_door()
