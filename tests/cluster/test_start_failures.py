"""What goes wrong at the start is said: which rank, why, and what its log says; never a hang."""

from __future__ import annotations

import os
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from tutorial_lib.cluster import Cluster, ClusterError, MpiError, StartError, mpi_flavour

pytestmark = pytest.mark.engines


@pytest.fixture(autouse=True)
def nothing_left(
    cluster_processes: Callable[[], list[psutil.Process]], runtime_base: Path
) -> Iterator[None]:
    yield
    assert not cluster_processes()
    assert not list(runtime_base.glob("gan-tutorial/*"))


@pytest.fixture
def at_rank_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Has code run in each rank's process before anything else."""

    def install(code: str) -> None:
        head = "import os\nrank = os.environ.get('PMI_RANK')\n"
        (tmp_path / "sitecustomize.py").write_text(head + textwrap.dedent(code))
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    return install


def fake_mpiexec(path: Path, version: str, body: str) -> Path:
    path.write_text(
        f'#!/bin/sh\nif [ "$1" = --version ]; then echo "{version}"; exit 0; fi\n{body}\n'
    )
    path.chmod(0o755)
    return path


def start_fails(n: int = 2, timeout_s: float = 30) -> str:
    with pytest.raises(StartError) as caught, Cluster(n, timeout_s=timeout_s):
        pass
    return str(caught.value)


def test_rank_that_fails_is_named_with_its_log(at_rank_start: Callable[[str], None]) -> None:
    at_rank_start(
        """
        if rank == "1":
            import sys
            sys.modules["mpi4py"] = None
        """
    )
    message = start_fails()
    assert "rank 1: process" in message
    assert "importing" in message
    assert "--- rank-1.log" in message
    assert "ModuleNotFoundError: import of mpi4py halted" in message
    assert "rank 1's process has ended" in message
    assert "command: " in message
    assert "tutorial_lib.cluster.engine" in message


def test_rank_that_does_not_get_ready_is_named_in_time(
    at_rank_start: Callable[[str], None],
) -> None:
    at_rank_start("if rank == '1':\n    import time; time.sleep(60)\n")
    began = time.monotonic()
    message = start_fails(timeout_s=6)
    assert time.monotonic() - began < 15
    assert "it took too long" in message
    assert "rank 1: did not start" in message
    assert "rank 0: process" in message


def test_rank_killed_at_the_start_is_named(at_rank_start: Callable[[str], None]) -> None:
    at_rank_start("if rank == '0':\n    os.kill(os.getpid(), 9)\n")
    message = start_fails()
    assert "rank 0: did not start" in message
    assert "Killed (signal 9)" in message


def test_broken_controller_is_named(at_rank_start: Callable[[str], None]) -> None:
    at_rank_start(
        "import sys\nif 'tutorial_lib.cluster.controller' in sys.orig_argv: os._exit(7)\n"
    )
    message = start_fails()
    assert "its controller has ended with exit status 7" in message


def test_mpiexec_and_mpi4py_of_different_mpis_are_both_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What a foreign mpiexec comes to: processes that know nothing of each other.
    body = 'shift; n=$1; shift 1\nwhile [ "$1" != "$PYTHON" ]; do shift; done\n'
    body += '"$@" & "$@"\nwait'
    mpiexec = fake_mpiexec(tmp_path / "mpiexec", "mpiexec (OpenRTE) 4.1.4", body)
    monkeypatch.setenv("PYTHON", sys.executable)
    monkeypatch.setenv(mpi_flavour.MPIEXEC_VARIABLE, str(mpiexec))
    with pytest.raises(MpiError) as caught, Cluster(2, timeout_s=30):
        pass
    message = str(caught.value)
    assert "2 engines are not 2 ranks of one MPI world, but of 1 rank" in message
    assert f"{mpiexec} is Open MPI 4.1.4, and mpi4py uses MPICH" in message
    assert "both must belong to the same MPI" in message


def test_library_that_refuses_a_foreign_mpiexec_is_named_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What MPICH does under Open MPI's mpiexec: it aborts when it sees PMIx.
    body = 'while [ "$1" != "$PYTHON" ]; do shift; done\nexport PMIX_RANK=0 PMI_RANK=0 PMI_FD=99\n'
    mpiexec = fake_mpiexec(tmp_path / "mpiexec", "mpiexec (OpenRTE) 4.1.4", f'{body}"$@"')
    monkeypatch.setenv("PYTHON", sys.executable)
    monkeypatch.setenv(mpi_flavour.MPIEXEC_VARIABLE, str(mpiexec))
    with pytest.raises(MpiError) as caught, Cluster(1, timeout_s=30):
        pass
    message = str(caught.value)
    assert f"{mpiexec} is Open MPI 4.1.4, and mpi4py uses MPICH" in message
    assert "--- rank-0.log" in message


def test_mpiexec_that_refuses_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = 'echo "There are not enough slots available"; exit 1'
    mpiexec = fake_mpiexec(tmp_path / "mpiexec", "mpiexec (OpenRTE) 4.1.4", body)
    monkeypatch.setenv(mpi_flavour.MPIEXEC_VARIABLE, str(mpiexec))
    message = start_fails()
    assert "mpiexec has ended with exit status 1" in message
    assert "not enough slots" in message
    assert "rank 0: did not start" in message


def test_missing_mpiexec_is_an_error_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(mpi_flavour.MPIEXEC_VARIABLE, "/no/such/mpiexec")
    with pytest.raises(MpiError, match="correct or unset it"), Cluster(2):
        pass


def test_unknown_profile_and_sizes_are_refused() -> None:
    with pytest.raises(ClusterError, match=r"no profile 'moon' in .*; there are mpi, "):
        Cluster(2, profile="moon").start()
    for n in (0, "2", 2.5):
        with pytest.raises(ValueError, match="a whole number of ranks, at least one"):
            Cluster(n)  # type: ignore[arg-type]
    assert type(Cluster(np.int64(2)).n) is int


def test_interrupt_while_starting_leaves_nothing(at_rank_start: Callable[[str], None]) -> None:
    at_rank_start("if rank == '1':\n    import time; time.sleep(60)\n")
    timer = threading.Timer(1.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt), Cluster(2):
        pass
    timer.join()
