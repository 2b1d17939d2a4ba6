"""The same training, started in each way that there is: on every rank the same losses, bit for bit.

On engines it is notebook 14 that shows it.
"""

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tutorial_lib.distributed import session

LAUNCHED = Path(__file__).parent / "programs" / "launched.py"

pytestmark = pytest.mark.timeout(240)  # of a machine that has other things to do, too
LIMIT_S = 200


@contextmanager
def taken_port() -> Iterator[int]:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield server.getsockname()[1]


@pytest.fixture
def port() -> str:
    with taken_port() as number:
        return str(number)


def told(stdout: str) -> list[dict]:
    lines = [json.loads(line) for line in stdout.splitlines() if line.startswith("{")]
    return sorted(lines, key=lambda line: line["rank"])


@pytest.fixture(scope="module")
def under_mpi(mpiexec):
    """Losses under mpiexec, with which all others are compared."""
    ranks = told(mpiexec(2, LAUNCHED, timeout_s=LIMIT_S).stdout)
    assert [rank["how"] for rank in ranks] == [["mpi", "mpi4py", 2]] * 2
    assert len(ranks[0]["losses"]) == 9
    assert ranks[0]["losses"] == ranks[1]["losses"]
    return ranks[0]["losses"]


def check(stdout: str, how: list, losses: list[float]) -> None:
    ranks = told(stdout)
    assert [rank["rank"] for rank in ranks] == [0, 1]
    for rank in ranks:
        assert rank["how"] == how
        assert rank["losses"] == losses


@pytest.mark.mpi
def test_mpiexec_with_gloo(mpiexec, under_mpi):
    done = mpiexec(2, LAUNCHED, "gloo", timeout_s=LIMIT_S)
    check(done.stdout, ["mpi", "gloo", 2], under_mpi)


@pytest.mark.mpi
def test_torchrun(python, under_mpi):
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    done = python(*torchrun, LAUNCHED, timeout_s=LIMIT_S)
    check(done.stdout, ["torchrun", "gloo", 2], under_mpi)


@pytest.mark.mpi
def test_spawn(python, under_mpi, port):
    done = python(LAUNCHED, "spawn", port, timeout_s=LIMIT_S)
    check(done.stdout, ["environment", "gloo", 2], under_mpi)


@pytest.mark.mpi
def test_variables_set_by_hand(python, under_mpi, port):
    def start(rank: str) -> str:
        place = {"RANK": rank, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        return python(LAUNCHED, timeout_s=LIMIT_S, **place).stdout

    with ThreadPoolExecutor() as pool:
        stdout = "".join(pool.map(start, "01"))
    check(stdout, ["environment", "gloo", 2], under_mpi)


@pytest.mark.mpi
def test_spawn_by_a_process_that_mpi_started(mpiexec, under_mpi, port):
    done = mpiexec(1, LAUNCHED, "spawn", port, timeout_s=LIMIT_S)
    check(done.stdout, ["environment", "gloo", 2], under_mpi)


def by_hand(monkeypatch, **variables: str) -> None:
    values = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", **variables}
    for name, value in values.items():
        monkeypatch.setenv(name, value)


def test_a_taken_port_is_named(monkeypatch):
    with taken_port() as number:
        by_hand(monkeypatch, MASTER_PORT=str(number))
        with pytest.raises(OSError, match=rf"MASTER_PORT={number} is taken on .* set another one"):
            session.start()
    assert session.current() is None


def test_mpi_carries_only_what_mpi_started(monkeypatch):
    by_hand(monkeypatch, MASTER_PORT="29500")
    with pytest.raises(ValueError, match="start them with mpiexec, or use backend 'gloo'"):
        session.start("mpi4py")
