"""SLURM's commands, each within a time: submit a job, ask how it is, cancel it, list the nodes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from tutorial_lib.cluster.errors import ClusterError
from tutorial_lib.cluster.slurm.states import FORMAT, JobState, read

JOB_PREFIX = "gan-tutorial-"  # of the name of a cluster's job; the name of its folder follows
COMMAND_S = 30.0  # a busy controller of a large site may take seconds to answer

# What a job around this process would tell the commands of the new job. The site's own settings
# (SLURM_CONF) and the user's (SBATCH_...) stay.
_KEPT = frozenset({"SLURM_CONF", "SLURM_CLUSTERS"})


class SlurmError(ClusterError):
    """A command of SLURM has failed; the message says which, and what it said."""


def environment() -> dict[str, str]:
    """This process's environment without what belongs to a job around it."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in _KEPT or not name.startswith(("SLURM_", "PMI_", "PMIX_"))
    }


def run(
    *command: str, text: str = "", timeout_s: float = COMMAND_S, with_errors: bool = False
) -> str:
    """Run a command of SLURM.

    Args:
        *command: Its words.
        text: For its standard input.
        timeout_s: How long it may take, in seconds.
        with_errors: Whether what it says on standard error is wanted too.

    Returns:
        What it prints.

    Raises:
        SlurmError: It is not there, fails, or takes too long.
    """
    try:
        done = subprocess.run(
            command,
            input=text,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            env=environment(),
        )
    except FileNotFoundError:
        raise SlurmError(
            f"no {command[0]} on the PATH: start the ranks where SLURM's commands are, on a login "
            "node of the cluster"
        ) from None
    except subprocess.TimeoutExpired:
        raise SlurmError(
            f"{command[0]} did not answer within {timeout_s:g} s: SLURM's controller may be down; "
            "try `scontrol ping`"
        ) from None
    if done.returncode != 0:
        said = " ".join((done.stderr or done.stdout).replace(f"{command[0]}: error: ", "").split())
        raise SlurmError(f"{command[0]}: {said or f'exit status {done.returncode}'}")
    return done.stdout + done.stderr if with_errors else done.stdout


def submit(script: str, options: Sequence[str]) -> int:
    """Hand a job in.

    Args:
        script: What it runs, for sh.
        options: For sbatch.

    Returns:
        Its number.

    Raises:
        SlurmError: SLURM refuses it, or does not say its number; in the second case, and if it
            did not answer in time, there may be a job all the same.
    """
    answer = run("sbatch", "--parsable", *options, text=script)
    last = answer.strip().rpartition("\n")[2].split(";")[0]
    if not last.isdecimal():
        raise SlurmError(f"sbatch: no number of a job in its answer {answer.strip()!r}")
    return int(last)


def state(number: int) -> JobState:
    """Ask how a job is.

    Args:
        number: Of the job.

    Raises:
        SlurmError: SLURM does not answer.
    """
    form = f"--format={FORMAT}"
    try:
        answer = run("squeue", "--noheader", "--states=all", f"--jobs={number}", form)
    except SlurmError as error:
        if "Invalid job id" in str(error):  # it ended some minutes ago
            return JobState(number, "")
        raise
    return read(number, answer.partition("\n")[0])


def cancel(number: int) -> None:
    """Cancel a job; one that has ended is left alone.

    Args:
        number: Of the job.

    Raises:
        SlurmError: SLURM does not answer.
    """
    try:
        run("scancel", str(number))
    except SlurmError as error:
        if "Invalid job id" not in str(error):
            raise


def cancel_named(name: str) -> list[str]:
    """The command line that cancels the user's jobs of a name.

    Args:
        name: Of the jobs.
    """
    return ["scancel", f"--user={os.getuid()}", f"--name={name}"]


def node_addresses(partition: str = "") -> list[str]:
    """Where the nodes are, each once.

    Args:
        partition: Only its nodes; "" for all.

    Raises:
        SlurmError: SLURM does not answer, or has no such nodes.
    """
    chosen = [f"--partition={partition}"] if partition else []
    found = run("sinfo", "--noheader", "--Node", "--format=%o", *chosen).split()
    if not found:
        raise SlurmError(f"sinfo: no nodes in {f'partition {partition!r}' if partition else 'it'}")
    return list(dict.fromkeys(found))


def mpi_types() -> set[str]:
    """What srun can speak with MPI libraries, such as "pmi2".

    Raises:
        SlurmError: srun does not answer.
    """
    told = run("srun", "--mpi=list", with_errors=True)  # where it says it depends on the version
    words = told.replace("srun:", " ").replace(",", " ").split()
    return {word for word in words if word.startswith(("pmi", "none", "openmpi"))}
