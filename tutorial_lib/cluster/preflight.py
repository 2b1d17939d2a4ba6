"""Are all hosts ready? Asked of every rank before anything is trained; a line for each check.

In a notebook ``ranks.preflight()`` or ``%ranks_preflight``; in a shell ``gan-tutorial cluster
preflight``; in a job of your own:

    mpiexec -n 4 python -m tutorial_lib.cluster.preflight --data-dir DIR --checkpoint-dir DIR
"""

from __future__ import annotations

import argparse
import base64
import pickle
import secrets
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from tutorial_lib.cluster import host_doors, host_facts, preflight_findings
from tutorial_lib.cluster.host_facts import Facts
from tutorial_lib.cluster.values import decode
from tutorial_lib.display.findings import Finding, Report
from tutorial_lib.distributed import gpu_placement, topology

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
        yield preflight_findings.absent(absent)
        return
    facts = _number([found[rank] for rank in sorted(found)])
    yield preflight_findings.hosts(facts)
    yield preflight_findings.versions(facts)

    leaders = [min(f.rank for f in facts if f.host == h) for h in {f.host for f in facts}]
    token = secrets.token_hex(16)
    opened = everyone(KNOCK_S, _open_door, sorted(leaders), token)
    try:
        doors = [door for door in opened.values() if isinstance(door, host_doors.Door)]
        heard = everyone(KNOCK_S, _knock, doors, token)
    finally:
        closed = everyone(KNOCK_S, _close_door)
    if absent := _failures({**closed, **heard, **opened}):
        yield preflight_findings.absent(absent)
    knocks = [one for tries in heard.values() if isinstance(tries, list) for one in tries]
    yield preflight_findings.ports(doors, knocks)
    yield preflight_findings.clocks(doors, knocks)

    yield preflight_findings.data(facts, data_dir)
    yield preflight_findings.checkpoints(facts, checkpoint_dir)
    yield preflight_findings.gpus(facts, gpu_placement.wish())


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


def everyone_under_mpi(
    seconds: float, function: Callable[..., object], *arguments: object
) -> dict[int, Any]:
    """Call a function here and tell the other ranks, who do the same. Collective.

    Args:
        seconds: For the others to tell what came of it.
        function: To call.
        *arguments: For it; rank 0's count.

    Returns:
        By rank, what the function returned or a ``Failure``; on all ranks.

    Raises:
        TimeoutError: A rank has said nothing in time.
    """
    from tutorial_lib.distributed import rendezvous

    place = topology.detect()

    def tell(value: object) -> list[Any]:
        text = base64.b64encode(pickle.dumps(value)).decode()
        told = rendezvous.exchange(text, place, None, timedelta(seconds=seconds))
        return [pickle.loads(base64.b64decode(part)) for part in told]

    value: object
    try:
        value = function(*tell(arguments)[0])
    except Exception as error:
        value = Failure(f"{type(error).__name__}: {error}")
    return dict(enumerate(tell(value)))


def main() -> None:
    """Be one of the ranks that examine their hosts; rank 0 prints the report."""
    parser = argparse.ArgumentParser(prog="preflight", description=__doc__.split("\n")[0])
    parser.add_argument("--data-dir", default="", help="a folder of data that every rank must have")
    parser.add_argument("--checkpoint-dir", default=".", help="where rank 0 will write")
    given = parser.parse_args()
    if topology.launcher() != "mpi":
        sys.exit("preflight: start it by mpiexec or srun, as you start your training")
    data_dir = str(Path(given.data_dir).resolve()) if given.data_dir else ""
    checkpoint_dir = str(Path(given.checkpoint_dir).resolve())
    report = examine(everyone_under_mpi, data_dir, checkpoint_dir)
    if _rank() == 0:
        print(report, flush=True)
    sys.exit(0 if report.is_ready else 1)


if __name__ == "__main__":
    main()
