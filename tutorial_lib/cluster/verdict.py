"""What came of work on the ranks: nothing to say, or the one error that explains it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tutorial_lib.cluster.errors import AGAIN, BusyRankError, CellError, DeadRankError
from tutorial_lib.cluster.rank_call import RankCall


def raise_root_cause(call: RankCall, cause_of_death: Callable[[int], str]) -> None:
    """Raise the cause of all failures, if there are any.

    Args:
        call: Work that was waited for.
        cause_of_death: Says of a rank that has died why, if that is known.

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
    root = min(failed, key=lambda rank: _order(failed[rank]))
    cause = failed[root]
    if "is_cluster" in cause:
        raise DeadRankError(f"{cause['message']}: {AGAIN}")
    if cause["status"] == "dead":
        why = cause_of_death(root) or cause["message"]
        raise DeadRankError(f"rank {root} has died ({why}): {AGAIN}")
    if cause["is_interrupt"]:
        raise KeyboardInterrupt(f"rank {root} was interrupted{_at_line(cause)}")
    message = f"{cause['message']}{_at_line(cause)}"
    raise CellError(root, cause["name"], message, cause["traceback"], fates(call, root))


def fates(call: RankCall, root: int | None = None) -> list[str]:
    """What came of the ranks that were not done, a line each.

    Args:
        call: Work that was waited for.
        root: A rank to leave out.
    """
    lines = []
    for rank in call.engines:
        answer = call.answers.get(rank)
        if answer is None:
            lines.append(f"rank {rank} could not be interrupted.")
        elif rank == root or answer["status"] == "ok":
            continue
        elif answer["is_interrupt"]:
            lines.append(f"rank {rank} was interrupted{_at_line(answer)}.")
        elif answer["status"] == "dead":
            lines.append(f"rank {rank} has died.")
        else:
            lines.append(f"rank {rank}: {answer['name']}: {answer['message']}{_at_line(answer)}")
    return lines


def _order(answer: Mapping[str, Any]) -> tuple[bool, bool, float]:
    """Sorts causes before consequences: deaths, then errors in order of time, then interrupts."""
    return answer["is_interrupt"], answer["status"] != "dead", answer["time"]


def _at_line(answer: Mapping[str, Any]) -> str:
    return f" (line {answer['line']})" if answer["line"] else ""
