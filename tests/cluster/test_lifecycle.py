"""Whoever of a cluster dies, and however, nothing of it is left."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import nbformat
import psutil
import pytest
from processes import command_line

from tutorial_lib.cluster import Cluster, DeadRankError, Ranks, runtime

pytestmark = pytest.mark.engines

GONE_WITHIN_S = 10
ENDS = [
    (kind, number)
    for kind in ("supervisor", "controller", "mpiexec", "engine")
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
    # mpiexec passes this one on, and a rank takes it as an interrupt of its cell.
    if number != signal.SIGINT or kind in ("supervisor", "controller")
]
OWNER = textwrap.dedent(
    """
    import sys
    from tutorial_lib.cluster import Cluster
    with Cluster(n=2, process_group=False) as ranks:
        print("ready", flush=True)
        if "busy" in sys.argv:
            ranks.run("while True: pass")
        sys.stdin.read()
    """
)

Find = Callable[[], list[psutil.Process]]
WaitUntil = Callable[..., bool]


def of_kind(processes: list[psutil.Process], kind: str) -> psutil.Process:
    """The oldest process that runs a module of the cluster, or a program."""
    matching = [p for p in processes if any(part.endswith(kind) for part in command_line(p)[:4])]
    return min(matching, key=lambda process: process.create_time())


@pytest.fixture
def owner(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    """Another process that has started a cluster of its own."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, *getattr(request, "param", [])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    yield process
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()


@pytest.mark.parametrize("owner", [[], ["busy"]], ids=["idle", "busy"], indirect=True)
def test_killed_owner_takes_its_cluster_with_it(
    owner: subprocess.Popen[str], cluster_processes: Find, wait_until: WaitUntil, runtime_base: Path
) -> None:
    assert len(cluster_processes()) > 4
    owner.kill()
    assert wait_until(lambda: not cluster_processes(), GONE_WITHIN_S), cluster_processes()
    assert not list(runtime_base.glob("gan-tutorial/*"))


@pytest.fixture
def papermill(tmp_path: Path, wait_until: WaitUntil) -> Iterator[subprocess.Popen[bytes]]:
    """Papermill in the second of three cells, in which rank 0 waits for rank 1."""
    cells = [
        "from tutorial_lib.cluster import Cluster\nCluster(n=2).start()",
        "%%ranks\nimport time, torch, torch.distributed as dist\n"
        f"open({str(tmp_path)!r} + f'/begun{{dist.get_rank()}}', 'w').close()\n"
        "if dist.get_rank():\n    time.sleep(100)\ndist.all_reduce(torch.ones(3))",
        f"open({str(tmp_path / 'reached')!r}, 'w').close()",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbformat.write(notebook, tmp_path / "in.ipynb")
    command = [sys.executable, "-m", "papermill", "in.ipynb", "out.ipynb", "-k", "python3"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL) as process:
        try:
            begun = [tmp_path / f"begun{rank}" for rank in (0, 1)]
            assert wait_until(lambda: all(path.exists() for path in begun), 100)
            yield process
        finally:
            process.kill()


def test_killed_papermill_takes_kernel_and_cluster_with_it(
    papermill: subprocess.Popen[bytes], cluster_processes: Find, wait_until: WaitUntil
) -> None:
    kernels = psutil.Process(papermill.pid).children()
    papermill.kill()
    papermill.wait()

    def left() -> list[psutil.Process]:
        return [*cluster_processes(), *(kernel for kernel in kernels if kernel.is_running())]

    assert wait_until(lambda: not left(), GONE_WITHIN_S), left()


def test_interrupted_papermill_saves_the_interrupt_and_goes_no_further(
    papermill: subprocess.Popen[bytes],
    cluster_processes: Find,
    wait_until: WaitUntil,
    tmp_path: Path,
) -> None:
    papermill.send_signal(signal.SIGINT)
    assert papermill.wait(20) == 1
    assert wait_until(lambda: not cluster_processes(), GONE_WITHIN_S), cluster_processes()
    saved = nbformat.read(tmp_path / "out.ipynb", as_version=4)
    (error,) = saved.cells[1].outputs
    assert error.ename == "KeyboardInterrupt"
    assert not (tmp_path / "reached").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_owner_that_just_ends_takes_its_cluster_with_it(
    owner: subprocess.Popen[str],
    number: signal.Signals,
    cluster_processes: Find,
    wait_until: WaitUntil,
) -> None:
    owner.send_signal(number)
    assert wait_until(lambda: not cluster_processes(), GONE_WITHIN_S), cluster_processes()


@pytest.mark.parametrize(("kind", "number"), ENDS)
def test_part_that_ends_takes_the_rest_with_it(
    kind: str,
    number: signal.Signals,
    cluster_processes: Find,
    wait_until: WaitUntil,
    runtime_base: Path,
) -> None:
    ranks = Cluster(n=2, process_group=False).__enter__()
    try:
        of_kind(cluster_processes(), kind).send_signal(number)
        assert wait_until(lambda: not cluster_processes(), GONE_WITHIN_S), cluster_processes()
        with pytest.raises(DeadRankError, match="or run the cell that starts the cluster again"):
            ranks.run("1")
    finally:
        ranks.stop()
    assert not list(runtime_base.glob("gan-tutorial/*"))


def test_dead_rank_is_named_with_the_signal(cluster_processes: Find) -> None:
    with Cluster(n=2, process_group=False) as ranks:
        code = "import os, signal\nfrom mpi4py import MPI\nif MPI.COMM_WORLD.rank == 1:\n"
        code += "    os.kill(os.getpid(), signal.SIGKILL)\nimport time; time.sleep(30)"
        with pytest.raises(DeadRankError, match=r"rank 1 has died \(SIGKILL.*out of memory\?\)"):
            ranks.run(code)
        with pytest.raises(DeadRankError):
            ranks.pull("x")
        with pytest.raises(DeadRankError):
            ranks.push({"x": 1})
        assert [row.state for row in ranks.status()] == ["dead", "dead"]


def test_running_the_cell_again_replaces_dead_ranks_and_reuses_live_ones(
    cluster_processes: Find,
) -> None:
    first = Cluster(n=2, process_group=False).start()
    again = Cluster(n=2, process_group=False).start()
    assert again is first
    before = len(cluster_processes())
    of_kind(cluster_processes(), "mpiexec").send_signal(signal.SIGKILL)
    with pytest.raises(DeadRankError):
        first.run("import time; time.sleep(20)")
    fresh = Cluster(n=2, process_group=False).start()
    assert fresh is not first
    assert not first.is_open
    assert len(cluster_processes()) == before
    other_size = Cluster(n=1, process_group=False).start()
    assert not fresh.is_open
    assert other_size.run("6 * 7") == {0: 42}
    other_size.stop()
    assert not cluster_processes()


def test_two_clusters_do_not_meet(ranks: Ranks) -> None:
    with Cluster(n=1, process_group=False) as other:
        ranks.push({"x": "here"})
        other.push({"x": "there"})
        assert ranks.pull("x") == {0: "here", 1: "here"}
        assert other.pull("x") == {0: "there"}


def test_runtime_files_are_private_and_gone_afterwards(runtime_base: Path) -> None:
    before = set(runtime_base.glob("gan-tutorial/*"))
    with Cluster(n=1, process_group=False):
        (folder,) = set(runtime_base.glob("gan-tutorial/*")) - before
        assert folder.stat().st_mode & 0o077 == 0
        for path in folder.rglob("*.json"):
            assert path.parent.stat().st_mode & 0o077 == 0, path
        assert next(found.path for found, _ in runtime.running("mpi")) == folder
    assert not folder.exists()
