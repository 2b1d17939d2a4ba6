"""Why ranks did not come up: which ones are missing, how far they came, what their logs say."""

from __future__ import annotations

import shlex
from typing import Any

import psutil

from tutorial_lib.cluster import controller_stacks, mpi_flavour
from tutorial_lib.cluster.errors import MpiError, StartError
from tutorial_lib.cluster.job_note import NEWS_S, StartLimit
from tutorial_lib.cluster.rank_stages import WAITS_FOR_CONTROLLER
from tutorial_lib.cluster.supervised import Supervised
from tutorial_lib.cluster.whereabouts import count

LOG_LINES = 20
TOO_LONG = "it took too long"


def check(supervised: Supervised, limit: StartLimit, known: set[int], obstacle: str = "") -> None:
    """Raise when starting has failed or takes too long.

    Args:
        supervised: What is being started.
        limit: How long that may take.
        known: The ranks that have come up.
        obstacle: Why it takes long, as seen from here, if that is known.

    Raises:
        StartError: It has failed: the message says which rank and why.
        MpiError: It has failed because mpiexec and mpi4py are of different MPIs.
    """
    if not (reason := _why_failed(supervised, limit, known)):
        return
    if reason == TOO_LONG and obstacle:
        reason = f"{reason}: {obstacle}"
    library = next((note["mpi"] for note in _reports(supervised).values() if note["mpi"]), "")
    if mpi_flavour.are_foreign(supervised.record.mpi, library):
        raise MpiError(explain(supervised, f"{reason}. {both_mpis(supervised)}", known))
    raise StartError(explain(supervised, reason, known))


def _why_failed(supervised: Supervised, limit: StartLimit, known: set[int]) -> str:
    """Why starting has failed, or "" when it has not."""
    if news := supervised.told("ranks ended"):
        return str(news["why"] or news["status"])
    if reason := supervised.why_dead():
        return reason
    for rank, report in supervised.folder.reports().items():
        # MPI itself may not notice: the other ranks wait for this one.
        if rank not in known and not _is_running(report):
            if supervised.record.is_job and (
                why := supervised.told("ranks ended", NEWS_S).get("why")
            ):
                return str(why)
            return f"rank {rank}'s process has ended{_on_host(report)}"
    return TOO_LONG if limit.left_s < 0 else ""


def both_mpis(supervised: Supervised) -> str:
    """Which MPI starts the ranks, and which one they use.

    Args:
        supervised: What is being started.
    """
    libraries = {note["mpi"] for note in _reports(supervised).values() if note["mpi"]}
    return (
        f"{supervised.record.engines_command[0]} is {supervised.record.mpi}, and mpi4py uses "
        f"{' and '.join(sorted(libraries))}: both must belong to the same MPI"
    )


def _reports(supervised: Supervised) -> dict[int, dict[str, Any]]:
    """How far the ranks have come; from the supervisor once it has removed the folder."""
    kept = supervised.folder.reports()  # first: the supervisor tells before it removes the folder
    told = supervised.told("ending").get("reports", {})
    return {int(rank): note for rank, note in told.items()} or kept


def _is_running(report: dict[str, Any]) -> bool:
    if "host" in report:  # the process number means nothing here
        return "has_ended" not in report
    try:
        return bool(psutil.Process(report["pid"]).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _on_host(report: dict[str, Any]) -> str:
    return f" on {report['host']}" if "host" in report else ""


def explain(supervised: Supervised, reason: str, known: set[int] | None) -> str:
    """Say which ranks are missing, how far they came, and what their logs say last.

    Args:
        supervised: What is being started.
        reason: Why it has failed.
        known: The ranks that have come up; None when all have, but something else is wrong.
    """
    folder, record = supervised.folder, supervised.record
    reports = _reports(supervised)
    missing = [rank for rank in range(record.n) if rank not in (known or ())]
    kept = folder.log_tails()
    logs = supervised.told("ending").get("logs") or kept
    stages = {reports[rank]["stage"] for rank in missing if rank in reports}
    is_waited_for = not WAITS_FOR_CONTROLLER.isdisjoint(stages)
    is_suspect = known is None or is_waited_for or "controller" in reason
    controller = supervised.told("started").get("controller", 0)
    stacks = controller_stacks.read(controller, folder.log("controller")) if is_suspect else ""
    came_up = f"{len(known)} of {count(record.n)} came up: " if known is not None else ""
    parts = [f"{came_up}{reason}"]
    for rank in missing[:4]:
        report = reports.get(rank)
        stage = "did not start"
        if report:
            came = report["stage"] if known is not None else "registered"
            stage = f"process {report['pid']}{_on_host(report)}, {came}"
        parts.append(f"rank {rank}: {stage}")
    names = [f"rank-{rank}" for rank in missing if logs.get(f"rank-{rank}")][:2]
    names += ["mpiexec"] + (["controller"] if is_suspect or not reports else [])
    names += [] if reports else ["supervisor"]
    tails = {name: "\n".join(logs.get(name, "").splitlines()[-LOG_LINES:]) for name in names}
    parts += [f"--- {name}.log\n{tail}" for name, tail in tails.items() if tail]
    parts += [f"--- what the controller's threads do\n{stacks}"] if stacks else []
    parts.append(f"command: {shlex.join(record.engines_command)}")
    return "\n".join(parts)
