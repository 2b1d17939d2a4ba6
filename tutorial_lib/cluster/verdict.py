"""What came of work on the ranks: nothing to say, or the one error that explains it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tutorial_lib.cluster.errors import AGAIN, BusyRankError, CellError, DeadRankError
from tutorial_lib.cluster.rank_call import RankCall
from tutorial_lib.cluster.whereabouts import Place, sentence


def raise_root_cause(
    call: RankCall,
    first_death: Callable[[int], tuple[int, str]],
    called: Callable[[int], str] = "rank {}".format,
) -> None:
    """Raise the cause of all failures, if there are any.

    Args:
        call: Work that was waited for.
        first_death: Says, when a rank has died, which rank did so first and why, if that is known.
        called: What a rank is called: "rank 2 on node2" where there are several hosts.

    Raises:
        CellError: A rank failed; where it failed first is the root cause.
        DeadRankError: A rank's process has ended, or the cluster has.
        BusyRankError: No rank failed, but one did not answer.
        KeyboardInterrupt: Ranks were interrupted, and nothing else failed.
    """
    failed = {rank: answer for rank, answer in call.answers.items() if answer["status"] != "ok"}
    if not failed:
        if call.pending:
            raise BusyRankError(f"rank {call.pending[0]} did not answer")
        return
    root = min(failed, key=lambda rank: _order(call, rank))
    cause = failed[root]
    if "is_cluster" in cause:
        raise DeadRankError(f"{cause['message']}: {AGAIN}")
    if cause["status"] == "dead":
        first, why = first_death(root)
        raise DeadRankError(f"{called(first)} has died ({why or cause['message']}): {AGAIN}")
    if cause["is_interrupt"]:
        raise KeyboardInterrupt(f"rank {root} was interrupted{_at_line(cause)}")
    message = f"{cause['message']}{_at_line(cause)}"
    raise CellError(root, cause["name"], message, cause["traceback"], fates(call, root))


def fates(call: RankCall, root: int | None = None) -> list[str]:
    """What came of the ranks that were not done, a line for each fate.

    Args:
        call: Work that was waited for.
        root: A rank to leave out.
    """
    shared: dict[str, list[int]] = {}
    for rank in call.engines:
        answer = call.answers.get(rank)
        if rank == root or (answer is not None and answer["status"] == "ok"):
            continue
        shared.setdefault(_fate(call, rank, answer, root), []).append(rank)
    return [f"{sentence(ranks, fate)}." for fate, ranks in shared.items()]


def _fate(call: RankCall, rank: int, answer: Mapping[str, Any] | None, root: int | None) -> str:
    if answer is None:
        return "could not be interrupted" if rank in call.pending else "had not begun"
    if answer["status"] == "dead":
        return "has died"
    place = _left(call, rank)
    if place is not None and place.wait is not None:
        return str(place).replace("waits in", "waited in", 1)
    if answer["is_interrupt"]:
        return f"was interrupted{_at_line(answer)}"
    if place is not None and place.site:  # torch's C++ does not tell what it waits for
        return f"was released at {place.site}"
    if root is not None and answer["message"] == call.answers[root]["message"]:
        return f"failed alike{_at_line(answer)}"
    return f"failed: {answer['name']}: {answer['message']}{_at_line(answer)}"


def _order(call: RankCall, rank: int) -> tuple[bool, bool, float]:
    """Sorts causes before consequences: deaths, then errors in order of time, then the released."""
    answer = call.answers[rank]
    is_released = answer["name"] != "CollectiveTimeoutError" and (
        answer["is_interrupt"]
        or answer["name"] == "CollectiveCancelledError"
        or _left(call, rank) is not None
    )
    return is_released, answer["status"] != "dead", answer["time"]


def _left(call: RankCall, rank: int) -> Place | None:
    """Where a rank was when it was released; None when it was not."""
    return call.left.get(rank) if call.left is not None else None


def _at_line(answer: Mapping[str, Any]) -> str:
    return f" (line {answer['line']})" if answer["line"] else ""
