"""Why a rank's process ended, read from what ``mpiexec`` says at its own end."""

from __future__ import annotations

import re
import signal

LIKELY_CAUSES = {
    signal.SIGKILL: "killed from outside; out of memory?",
    signal.SIGSEGV: "a memory error in native code",
    signal.SIGABRT: "native code gave up",
    signal.SIGBUS: "a memory error; is /dev/shm full?",
    signal.SIGILL: "native code for another processor",
    signal.SIGTERM: "told to end",
}


def cause_of_death(log: str, rank: int, pid: int, mpiexec_status: int | None = None) -> str:
    """Find out why a rank's process ended.

    Args:
        log: What mpiexec printed.
        rank: The rank.
        pid: Its process.
        mpiexec_status: Exit status of mpiexec, which MPICH takes from the rank without a word.

    Returns:
        For example "SIGKILL: killed from outside; out of memory?" or "exit status 3"; empty when
        mpiexec said nothing of this rank.
    """
    mpich = re.search(
        rf"PID {pid} RUNNING AT.*?EXIT STRING: [^\n]*\(signal (\d+)\)", log, re.DOTALL
    )
    open_mpi = re.search(
        rf"process rank {rank} with PID .*?exited\s+on\s+signal (\d+)", log, re.DOTALL
    )
    if match := mpich or open_mpi:
        return _signal(int(match[1]))
    if match := re.search(rf"Process name: \[.*?,{rank}\]\s+Exit code:\s+(\d+)", log):
        return f"exit status {match[1]}"
    if mpiexec_status is None or re.search(r"RUNNING AT|process rank|Process name", log):
        return ""
    return f"exit status {mpiexec_status}: told to end, or by os._exit"


def _signal(number: int) -> str:
    try:
        known = signal.Signals(number)
    except ValueError:
        return f"signal {number}"
    cause = LIKELY_CAUSES.get(known)
    return f"{known.name}: {cause}" if cause else known.name
