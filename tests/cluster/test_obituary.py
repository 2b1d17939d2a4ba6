"""Why a rank died, from what each mpiexec says."""

from __future__ import annotations

import pytest

from tutorial_lib.cluster.obituary import cause_of_death

# As recorded, with the process id replaced.
MPICH = """\
===================================================================================
=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
=   PID 4711 RUNNING AT vm
=   EXIT CODE: 9
=   CLEANING UP REMAINING PROCESSES
=   YOU CAN IGNORE THE BELOW CLEANUP MESSAGES
===================================================================================
YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)
This typically refers to a problem with your application.
"""
OPEN_MPI_4_KILLED = """\
--------------------------------------------------------------------------
mpiexec noticed that process rank 1 with PID 0 on node vm exited on signal 9 (Killed).
--------------------------------------------------------------------------
"""
OPEN_MPI_4_EXITED = """\
mpiexec detected that one or more processes exited with non-zero status, thus causing
the job to be terminated. The first process to do so was:

  Process name: [[939,1],1]
  Exit code:    3
"""
OPEN_MPI_5_KILLED = """\
prterun noticed that process rank 1 with PID 4711 on node vm exited on
signal 9 (Killed).
"""
OPEN_MPI_5_EXITED = """\
thus causing the job to be terminated. The first process to do so was:

   Process name: [prterun-vm-28547@1,1]
   Exit code:    3
"""


@pytest.mark.parametrize("log", [MPICH, OPEN_MPI_4_KILLED, OPEN_MPI_5_KILLED])
def test_signal_and_likely_cause_are_read(log: str) -> None:
    assert cause_of_death(log, 1, 4711) == "SIGKILL: killed from outside; out of memory?"


@pytest.mark.parametrize("log", [OPEN_MPI_4_EXITED, OPEN_MPI_5_EXITED])
def test_exit_status_is_read(log: str) -> None:
    assert cause_of_death(log, 1, 4711) == "exit status 3"


def test_mpich_passes_an_exit_status_on_in_silence() -> None:
    for status in (3, 0):
        cause = cause_of_death("", 1, 4711, mpiexec_status=status)
        assert cause == f"exit status {status}: told to end, or by os._exit"
    assert cause_of_death("", 1, 4711) == ""


def test_what_is_said_of_another_rank_is_not_believed() -> None:
    for log in (MPICH, OPEN_MPI_4_KILLED, OPEN_MPI_5_KILLED, OPEN_MPI_4_EXITED):
        assert cause_of_death(log, 0, 4712, mpiexec_status=9) == ""


def test_other_signals() -> None:
    fault = MPICH.replace("Killed (signal 9)", "Segmentation fault (signal 11)")
    assert cause_of_death(fault, 0, 4711) == "SIGSEGV: a memory error in native code"
    unknown = MPICH.replace("(signal 9)", "(signal 63)")
    assert cause_of_death(unknown, 0, 4711).startswith("signal 63")
