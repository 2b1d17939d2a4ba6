"""Ranks that wait are explained and released; training resumes where it was saved."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tutorial_lib.cluster import CellError, Cluster, ClusterError, DeadRankError, Ranks
from tutorial_lib.cluster import ranks as ranks_module
from tutorial_lib.cluster.dispatcher import Options
from tutorial_lib.cluster.replay import Cell
from tutorial_lib.cluster.whereabouts import Whereabouts

pytestmark = [pytest.mark.engines, pytest.mark.timeout(300)]

SETUP = """
import os, signal, time, torch, torch.distributed as dist
from tutorial_lib.distributed import session
from tutorial_lib.distributed.data_parallel import data_parallel
from tutorial_lib.distributed.sync_check import check_in_sync
rank = session.start({backend!r}).rank
kept = "still here"
model = torch.nn.Linear(20, 30)
wrapped = data_parallel(model)
"""
WAITS = {
    "a collective": "dist.all_reduce(torch.ones(3))",
    "backward": "wrapped(torch.ones(4, 20)).sum().backward()",
}
Faults = tuple[Ranks, str]


@pytest.fixture(scope="module", params=["mpi4py", "gloo"])
def fragile(request: pytest.FixtureRequest, private_runtime: None) -> Iterator[Faults]:
    """Two ranks that say soon what they wait for, and the backend of their group."""
    is_mpi = request.param == "mpi4py"
    cluster = Cluster(
        n=2, process_group=is_mpi, hang_limit_s=1, collective_timeout_s=30, attach=False
    )
    with cluster as ranks:
        ranks.run(SETUP.format(backend=request.param))
        yield ranks, request.param


@contextmanager
def interrupt_when(holds: Callable[[], object]) -> Iterator[None]:
    is_over = threading.Event()

    def interrupt() -> None:
        while not is_over.wait(0.05):
            if holds():
                os.kill(os.getpid(), signal.SIGINT)
                return

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def waits_for_a_sleeper(where: Whereabouts) -> bool:
    return where[0].wait is not None and where[1].call == "time.sleep"


def assert_training_goes_on(ranks: Ranks) -> None:
    step = "wrapped.zero_grad()\nwrapped(torch.full((4, 20), 1.0 + rank)).sum().backward()\n"
    step += "check_in_sync(model)\nkept, model.weight.grad[0, 0].item()"
    assert set(ranks.run(step).values()) == {("still here", 12.0)}


@pytest.mark.parametrize("wait", WAITS)
def test_first_error_releases_all(
    fragile: Faults, wait: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ranks, _ = fragile
    failing = f"if rank == 1:\n    model.weight.data += 1\n    1 / 0\n{WAITS[wait]}"
    begun = time.monotonic()
    with pytest.raises(CellError, match=r"^rank 1: ZeroDivisionError: .* \(line 3\)") as caught:
        ranks.run(failing)
    assert time.monotonic() - begun < 5
    (other,) = caught.value.others
    assert other.startswith(("rank 0 waited in ", "rank 0 was released at "))
    assert other.endswith("at line 4 of the cell.")
    assert_training_goes_on(ranks)
    assert "rank 0's weights were copied to all ranks: Linear" in "".join(capsys.readouterr())


def test_interrupts_in_a_row_lose_nothing(fragile: Faults) -> None:
    ranks, _ = fragile
    for _ in range(2):
        both_are_at_it = interrupt_when(lambda: waits_for_a_sleeper(ranks.where()))
        with both_are_at_it, pytest.raises(KeyboardInterrupt):
            ranks.run("if rank == 0:\n    dist.barrier()\nelse:\n    time.sleep(60)")
    assert_training_goes_on(ranks)


def test_where_answers_while_ranks_compute_and_wait(
    fragile: Faults, tmp_path: Path, wait_until: Callable[..., bool]
) -> None:
    ranks, _ = fragile
    seen: list[Whereabouts] = []

    def look_and_let_go() -> None:
        wait_until(lambda: seen.append(ranks.where()) or waits_for_a_sleeper(seen[-1]), 20)
        (tmp_path / "go on").touch()

    thread = threading.Thread(target=look_and_let_go)
    thread.start()
    nap = f"while not os.path.exists({str(tmp_path / 'go on')!r}): time.sleep(0.05)"
    ranks.run(f"if rank == 1:\n    {nap}\nx = torch.ones(1000)\ndist.all_reduce(x)")
    thread.join()
    where = seen[-1]
    assert (where[1].site, where[1].call) == ("line 2 of the cell", "time.sleep")
    wait = where[0].wait
    assert wait is not None
    assert (wait.operation, wait.shape, wait.nbytes) == ("all_reduce", (1000,), 4000)
    assert "line 4 of the cell" in repr(where)
    assert [place.state for place in ranks.where().values()] == ["idle", "idle"]
    answers = ranks.control.ask("ping")
    assert {rank: answer["rank"] for rank, answer in answers.items()} == {0: 0, 1: 1}


def test_hang_is_explained_while_it_lasts(
    fragile: Faults, capsys: pytest.CaptureFixture[str]
) -> None:
    ranks, _ = fragile
    ranks.run("\nif rank == 1:\n    time.sleep(5)\ndist.barrier()")
    said = capsys.readouterr().err
    sleeper = r"rank 1 is at line 3 of the cell \(time\.sleep\)"
    assert re.search(rf"Waiting for \d+ s: {sleeper}; rank 0 waits in", said)
    assert "(dist.barrier) at line 4 of the cell." in said


def test_rank_that_takes_no_part_is_named(
    fragile: Faults, capsys: pytest.CaptureFixture[str]
) -> None:
    ranks, _ = fragile
    it_is_said = interrupt_when(lambda: "rank 1 has nothing to do" in capsys.readouterr().err)
    with it_is_said, pytest.raises(KeyboardInterrupt):
        ranks.run("dist.barrier()", ranks=[0])
    assert_training_goes_on(ranks)


def test_time_out_says_who_was_where() -> None:
    with Cluster(n=2, hang_limit_s=0.5, collective_timeout_s=2, attach=False) as ranks:
        code = (
            "import time, torch.distributed as dist\nif dist.get_rank() == 1:\n    time.sleep(60)"
        )
        with pytest.raises(CellError, match="CollectiveTimeoutError") as caught:
            ranks.run(f"{code}\ndist.barrier()")
        said = str(caught.value)
        assert "rank 1 is at line 3 of the cell (time.sleep)" in said
        assert "rank 0 waits in barrier #1 (dist.barrier) at line 4 of the cell" in said
        assert ranks.run("dist.barrier()\n1") == {0: 1, 1: 1}


TRAINING = """
import os, signal
from tutorial_lib.distributed import session
from tutorial_lib.training.gan import BasicGan, GanConfig
from tutorial_lib.training.gan_checkpoint import restore_gan, save_gan
from tutorial_lib.training.gan_loop import GanResult
rank = session.start().rank
gan = BasicGan(GanConfig(minibatch_size=32, seed=3), is_verbose=False)
losses = []
def train(steps):
    for _ in range(steps):
        losses.extend(gan.step())
    return [record.loss_average for record in losses]
"""


def test_dead_rank_is_named_and_training_resumes_where_it_was_saved(tmp_path: Path) -> None:
    file = str(tmp_path / "gan.pt")
    with Cluster(n=2, attach=False) as ranks:
        ranks.run_cell(Cell(TRAINING, is_setup=True))
        ranks.push({"file": file})
        ranks.run(
            "train(2)\nsave_gan(gan, file, GanResult(gan.generator, gan.discriminator, losses))"
        )
        uninterrupted = ranks.run("train(2)")
        with pytest.raises(DeadRankError, match=r"rank 1 has died \(SIGKILL: killed .* memory"):
            ranks.run("if rank == 1:\n    os.kill(os.getpid(), signal.SIGKILL)\ntrain(1000)")
        assert ranks.restart() is ranks
        ranks.push({"file": file})
        assert ranks.run("losses = restore_gan(gan, file).losses\ntrain(2)") == uninterrupted


def test_ranks_of_somebody_else_are_not_restarted(ranks: Ranks) -> None:
    guests = Ranks(ranks._work._connection, Options(process_group=False))
    try:
        with pytest.raises(ClusterError, match="were started elsewhere"):
            guests.restart()
    finally:
        ranks_module._open.remove(guests)
