"""Ranks as jobs of a real SLURM that wait: seen waiting, withdrawn, and gone with who waits."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time

import pytest
import slurm_site
from slurm_site import cluster, later

from tutorial_lib.cluster import StartError, live_line

pytestmark = [
    pytest.mark.engines,
    pytest.mark.timeout(240),
    pytest.mark.skipif(bool(slurm_site.missing()), reason=slurm_site.missing() or "there is SLURM"),
]


def hog(site: slurm_site.Site) -> int:
    """Take all of the node with a job that does nothing."""
    script = ["--wrap", "sleep 1000", f"--ntasks={slurm_site.CORES}", "--output=/dev/null"]
    number = int(site.run("sbatch", "--parsable", "--job-name=hog", *script))
    deadline = time.monotonic() + 30
    while [job.state for job in site.queue()] != ["RUNNING"]:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return number


@pytest.fixture
def shown(monkeypatch) -> list[str]:
    """What the line that changes in place has shown."""
    texts: list[str] = []
    original = live_line.LiveLine.show
    monkeypatch.setattr(
        live_line.LiveLine, "show", lambda self, text: (texts.append(text), original(self, text))
    )
    return texts


def test_a_job_that_waits_says_why_and_its_wait_is_no_slow_start(queue, shown, wait_until):
    number = hog(queue)
    starting = cluster(timeout_s=25)
    free = later(lambda: queue.run("scancel", str(number)), 30)
    with starting as ranks:
        assert ranks.run("1") == {0: 1, 1: 1}
    free.join()
    waiting = [text for text in dict.fromkeys(shown) if "waits in the queue" in text]
    assert re.search(
        r"starting 2 ranks: job \d+ waits in the queue \(Resources: other jobs hold the nodes\)",
        "\n".join(waiting),
    ), shown


def test_a_job_that_waits_for_too_long_is_withdrawn_and_the_reason_told(queue, change):
    number = hog(queue)
    change(queue_timeout_s=6.0)
    with pytest.raises(StartError, match=r"job \d+ waits in the queue \(Resources") as error:
        cluster().start()
    assert "so it has been withdrawn" in str(error.value)
    assert "c.Ranks.queue_timeout_s" in str(error.value)
    assert [job.name for job in queue.queue()] == ["hog"]
    queue.run("scancel", str(number))


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_waiting_job_leaves_with_who_waits_for_it(queue, wait_until, tmp_path, is_killed):
    number = hog(queue)
    program = "from tutorial_lib.cluster import Cluster; Cluster(2, 'slurm', attach=False).start()"
    with (tmp_path / "log").open("w+") as log:
        waiting = subprocess.Popen([sys.executable, "-c", program], stdout=log, stderr=log)
    try:
        has_come = wait_until(lambda: len(queue.queue()) == 2 or waiting.poll() is not None, 60)
        assert has_come, "no second job"
        assert waiting.poll() is None, (tmp_path / "log").read_text()
    finally:
        waiting.send_signal(signal.SIGKILL if is_killed else signal.SIGINT)
        waiting.wait(30)
    assert wait_until(lambda: [job.name for job in queue.queue()] == ["hog"], 20), queue.queue()
    queue.run("scancel", str(number))
