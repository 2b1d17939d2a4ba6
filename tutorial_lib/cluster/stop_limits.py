"""How long the steps of a cluster's end may take, and so how long its owner waits, in seconds."""

from __future__ import annotations

JOB_NEWS_S = 3.0  # for the launcher of a batch job to ask how the job is
NOTIFICATION_S = 1.0  # for clients to hear of the ranks' end from the controller
ENGINES_GRACE_S = 3.0
KILL_GRACE_S = 2.0
WITHDRAW_S = 5.0  # for SLURM to take a job out of its queue
CONTROLLER_GRACE_S = 1.5
GUARDS_GRACE_S = 1.0  # for guards here to remove their folders
FILES_S = 2.5  # for logs to be read and folders to be removed, on a busy host

# A supervisor that sees its ranks end does all this before it looks at its owner again.
STOP_TIMEOUT_S = (
    JOB_NEWS_S
    + NOTIFICATION_S
    + ENGINES_GRACE_S
    + KILL_GRACE_S
    + WITHDRAW_S
    + CONTROLLER_GRACE_S
    + GUARDS_GRACE_S
    + KILL_GRACE_S
    + FILES_S
)
