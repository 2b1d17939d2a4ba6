"""Whatever happens while a checkpoint is written, the last good one can be loaded."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from tutorial_lib.learners.fsadagrad import fsadagrad
from tutorial_lib.training.trainer import Trainer

KILLS = 6
# A process that has imported torch forks one that saves again and again, until it is killed.
SAVE_AND_DIE = """
import os, random, signal, sys, time
sys.path.insert(0, sys.argv[2])
from test_checkpoint_faults import made
trainer, path, kills = made(), sys.argv[1], int(sys.argv[3])
trainer.save_checkpoint(path, {"number": 0})
for seed in range(kills):
    before = os.stat(path).st_ino
    pid = os.fork()
    if pid == 0:
        number = trainer.restore_from_checkpoint(path)["number"]
        while True:
            number += 1
            trainer.save_checkpoint(path, {"number": number})
    while os.stat(path).st_ino == before:
        time.sleep(0.001)  # it has saved once
    time.sleep(random.Random(seed).uniform(0, 0.1))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    print(trainer.restore_from_checkpoint(path)["number"], flush=True)
"""


def made() -> Trainer:
    torch.manual_seed(0)
    model = nn.Linear(300, 200)
    return Trainer(
        model,
        lambda net, x: net(x).square().sum(dim=1),
        fsadagrad(model.parameters(), lr=0.01, momentum=0.9),
    )


@pytest.mark.timeout(300)
def test_kill_at_any_moment_of_a_save_leaves_a_whole_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    arguments = [str(path), str(Path(__file__).parent), str(KILLS)]
    done = subprocess.run(
        [sys.executable, "-c", SAVE_AND_DIE, *arguments],
        capture_output=True,
        text=True,
        timeout=250,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    numbers = list(map(int, done.stdout.split()))
    assert len(numbers) == KILLS
    assert numbers == sorted(numbers)
    assert numbers[-1] > 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk with room for one checkpoint; or files that may be no larger."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True
    )
    yield folder
    if mount.returncode == 0:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_full_disk_keeps_the_last_checkpoint(small_disk: Path) -> None:
    trainer, path = made(), small_disk / "checkpoint"
    trainer.save_checkpoint(path, {"number": 1})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        if not os.path.ismount(small_disk):
            resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size // 2, limits[1]))
        with pytest.raises(OSError, match="could not write the checkpoint"):
            trainer.save_checkpoint(path, {"number": 2, "ballast": torch.zeros(300_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert trainer.restore_from_checkpoint(path) == {"number": 1}
    assert os.listdir(small_disk) == ["checkpoint"]
    trainer.save_checkpoint(path, {"number": 3})
    assert trainer.restore_from_checkpoint(path) == {"number": 3}


def test_read_only_folder_keeps_the_last_checkpoint(small_disk: Path) -> None:
    trainer, path = made(), small_disk / "checkpoint"
    trainer.save_checkpoint(path, {"number": 1})
    if os.path.ismount(small_disk):
        subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    else:
        small_disk.chmod(0o555)
        if os.geteuid() == 0:
            return  # nothing is read-only to this user here
    with pytest.raises(OSError, match="could not write the checkpoint"):
        trainer.save_checkpoint(path, {"number": 2})
    assert trainer.restore_from_checkpoint(path) == {"number": 1}
    if not os.path.ismount(small_disk):
        small_disk.chmod(0o755)
