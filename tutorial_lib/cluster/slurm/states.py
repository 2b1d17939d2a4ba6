"""What SLURM says of a job, in words for somebody who waits for it."""

from __future__ import annotations

from dataclasses import dataclass

# What to ask squeue for, and the marks between the answers.
FORMAT = "%T|%l|%N|%r"

WAITING = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT"})
RUNNING = frozenset({"RUNNING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT"})
ENDING = "COMPLETING"

# Why a job waits, and what that means; of the reasons that `man squeue` lists, those that a reader
# can do something about, or that are seen most.
REASONS = {
    "Resources": "other jobs hold the nodes",
    "Priority": "other jobs come first",
    "Dependency": "it waits for another job",
    "BeginTime": "it may not begin yet",
    "JobHeldUser": "it is held: `scontrol release` lets it go",
    "JobHeldAdmin": "an administrator holds it",
    "PartitionDown": "the partition is down",
    "PartitionInactive": "the partition is not in use",
    "PartitionNodeLimit": "it asks for more nodes than the partition gives: ask for fewer",
    "PartitionTimeLimit": "it asks for more time than the partition gives: ask for less",
    "PartitionConfig": "the partition can't give what it asks for: ask for less",
    "BadConstraints": "no node has what it asks for: ask for less",
    "ReqNodeNotAvail": "nodes that it needs are down, drained or reserved",
    "QOSMaxJobsPerUserLimit": "you have as many jobs as you may",
    "AssocMaxJobsLimit": "your account has as many jobs as it may",
    "AssocGrpCpuLimit": "your account holds as many cores as it may",
    "MaxCpuPerAccount": "your account holds as many cores as it may",
    "Licenses": "it waits for a licence",
    "Reservation": "it waits for its reservation",
    "InvalidAccount": "there is no such account: correct it",
    "InvalidQOS": "there is no such quality of service: correct it",
}

# How a job ends that nobody on its ranks has ended.
ENDINGS = {
    "CANCELLED": "was cancelled",
    "TIMEOUT": "reached its time limit",
    "DEADLINE": "reached its deadline",
    "NODE_FAIL": "lost a node that failed",
    "BOOT_FAIL": "got a node that failed to start",
    "OUT_OF_MEMORY": "ran out of memory",
    "PREEMPTED": "was ended for a job that came first",
    "REVOKED": "was revoked",
}


@dataclass(frozen=True)
class JobState:
    """A job at one moment.

    Attributes:
        number: Of the job.
        name: Of the state, as SLURM writes it; "" when SLURM does not know the job any more.
        limit: Its time limit, as SLURM writes it.
        nodes: Its nodes.
        reason: Why it waits, or why it ended.
    """

    number: int
    name: str
    limit: str = ""
    nodes: str = ""
    reason: str = ""

    @property
    def is_waiting(self) -> bool:
        """Whether it has not started yet."""
        return self.name in WAITING

    @property
    def is_over(self) -> bool:
        """Whether it has ended, with all it had started."""
        return self.name not in WAITING | RUNNING and self.name != ENDING

    @property
    def is_ended_from_outside(self) -> bool:
        """Whether it ended, and not because its ranks did."""
        return self.name in ENDINGS

    def __str__(self) -> str:
        job = f"job {self.number}"
        if self.name == "CONFIGURING":
            return f"{job} has got nodes ({self.nodes}), which are being started"
        if self.is_waiting:
            reason = self.reason.split(",")[0].strip("()") or "None"
            if reason == "None":  # nobody has looked at it yet
                return f"{job} waits in the queue"
            meaning = REASONS.get(reason)
            said = f"{reason}: {meaning}" if meaning else reason
            return f"{job} waits in the queue ({said})"
        if self.is_ended_from_outside:
            limit = f" ({self.limit})" if self.name == "TIMEOUT" and self.limit else ""
            return f"{job} {ENDINGS[self.name]}{limit}"
        if self.name == "SUSPENDED":
            return f"{job} is suspended"
        if self.name == "FAILED":
            return f"{job} has failed"
        if not self.is_over:
            return f"{job} runs on {self.nodes}" if self.nodes else f"{job} runs"
        return f"{job} has ended"


def read(number: int, line: str) -> JobState:
    """Read what squeue said of a job.

    Args:
        number: Of the job.
        line: As squeue writes it in ``FORMAT``; empty when it knows no such job.
    """
    if not line.strip():
        return JobState(number, "")
    name, limit, nodes, reason = (part.strip() for part in line.strip().split("|", 3))
    return JobState(number, name, limit, nodes, reason)
