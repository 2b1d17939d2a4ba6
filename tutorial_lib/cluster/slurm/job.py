"""The program that stands for a SLURM job on this host, as mpiexec stands for ranks.

    python -m tutorial_lib.cluster.slurm.job --queue-timeout SECONDS --sbatch=OPTION SCRIPT

It hands the job in, says how it is (in the cluster's folder, and in its own log), and ends with it.
The job ends with it too: when it is told to end, and when the cluster's supervisor is gone. A
signal SIGUSR1 asks it to look at the job now, rather than at its leisure: sites don't like to be
asked every second by everybody.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import signal
import sys
import time
from pathlib import Path
from types import FrameType

from tutorial_lib.cluster import job_note, lifeline
from tutorial_lib.cluster.job_note import JobNote
from tutorial_lib.cluster.runtime import FOLDER_VARIABLE, ClusterFolder
from tutorial_lib.cluster.slurm import commands
from tutorial_lib.cluster.slurm.commands import SlurmError
from tutorial_lib.cluster.slurm.states import JobState

# Between two looks at a job, in seconds: while it is young, waits, runs, or something happens.
YOUNG_S, QUEUE_S, RUN_S, HURRY_S = 1.0, 10.0, 30.0, 0.25
YOUTH_S = 20.0
HURRIED_S = 8.0  # so long it hurries after it was asked to
END_S = 8.0  # for a cancelled job to leave


class SlurmJob:
    """A job and this program's view of it.

    Args:
        folder: The cluster's.
        queue_timeout_s: How long the job may wait, in seconds.
    """

    def __init__(self, folder: ClusterFolder, queue_timeout_s: float) -> None:
        self.folder = folder
        self.queue_timeout_s = queue_timeout_s
        self.is_told_to_end = False
        # Python runs a handler between two steps of the main thread, which may hold a lock or be
        # about to wait; the byte that its C handler writes into the pipe is in time in any case.
        self._wake, self._wake_by = os.pipe()
        for end in (self._wake, self._wake_by):
            os.set_blocking(end, False)
        self._hurry_until = 0.0
        self._said = ""

    def take_signals(self) -> None:
        """Take this process's signals from now on; for its main thread."""
        signal.set_wakeup_fd(self._wake_by, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """SIGUSR1 is to hurry, all others to end; takes no lock."""
        if number == signal.SIGUSR1:
            self._hurry_until = time.monotonic() + HURRIED_S
        else:
            self.is_told_to_end = True

    def run(self, script: str, options: list[str]) -> int:
        """Hand the job in and stay until it has ended, or is told to.

        Args:
            script: What it runs.
            options: For sbatch.

        Returns:
            The exit status that tells how it ended: 0 if well.
        """
        try:
            number = commands.submit(script, options)
        except SlurmError as error:
            self._end_with(f"SLURM did not take the job: {error}")
            return 1
        try:
            return self._follow(number)
        finally:
            with contextlib.suppress(SlurmError):
                commands.cancel(number)  # if it has not ended

    def _follow(self, number: int) -> int:
        began = time.monotonic()
        state = JobState(number, "PENDING")
        while not self.is_told_to_end:
            with contextlib.suppress(SlurmError):  # a controller that restarts loses no jobs
                state = commands.state(number)
            self._say(state)
            if state.is_over:
                return 0 if state.name in ("COMPLETED", "") else 1
            waited_s = time.monotonic() - began
            if state.is_waiting and waited_s > self.queue_timeout_s:
                with contextlib.suppress(SlurmError):  # the supervisor tries too
                    commands.cancel(number)
                self._end_with(
                    f"{state} for {waited_s:.0f} s, so it has been withdrawn: try again later, ask "
                    "for less, or let it wait longer by c.Ranks.queue_timeout_s"
                )
                return 1
            left_s = self.queue_timeout_s - waited_s if state.is_waiting else RUN_S
            self._sleep(max(0.05, min(left_s, self._pause_s(state, waited_s))))
        self._cancel(number)
        return 0

    def _sleep(self, seconds: float) -> None:
        """Sleep until there is a signal."""
        select.select([self._wake], [], [], seconds)
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake, 1024)

    def _pause_s(self, state: JobState, age_s: float) -> float:
        if time.monotonic() < self._hurry_until or state.name == "COMPLETING":
            return HURRY_S
        if age_s < YOUTH_S:
            return YOUNG_S
        return QUEUE_S if state.is_waiting else RUN_S

    def _say(self, state: JobState) -> None:
        text = str(state)
        if text != self._said:
            self._said = text
            print(text, flush=True)
            ending = text if state.is_ended_from_outside else ""
            job_note.write(self.folder, JobNote(text, state.is_waiting, ending))

    def _end_with(self, reason: str) -> None:
        print(reason, flush=True)
        job_note.write(self.folder, JobNote(reason, False, reason))

    def _cancel(self, number: int) -> None:
        """End the job, and wait until nothing of it is in the queue."""
        deadline = time.monotonic() + END_S
        with contextlib.suppress(SlurmError):
            commands.cancel(number)
            while not commands.state(number).is_over and time.monotonic() < deadline:
                time.sleep(HURRY_S)


def main() -> None:
    """Stand for one job."""
    parser = argparse.ArgumentParser(prog="job")
    parser.add_argument("--queue-timeout", type=float, required=True, metavar="SECONDS")
    parser.add_argument("--sbatch", action="append", default=[], metavar="OPTION")
    parser.add_argument("script")
    given = parser.parse_args()
    folder = ClusterFolder(Path(os.environ[FOLDER_VARIABLE]))
    job = SlurmJob(folder, given.queue_timeout)
    job.take_signals()
    lifeline.watch(folder.lifeline, lambda: os.kill(os.getpid(), signal.SIGTERM))
    name = f"--job-name={commands.JOB_PREFIX}{folder.path.name}"
    sys.exit(job.run(given.script, [name, *given.sbatch]))


if __name__ == "__main__":
    main()
