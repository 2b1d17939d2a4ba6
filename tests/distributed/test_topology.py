import os
import socket
import subprocess
import sys

import pytest

from tutorial_lib.distributed import topology

VARIABLES = [
    *topology.MPI_RANK_VARIABLES,
    *topology.TORCH_VARIABLES,
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "TORCHELASTIC_RUN_ID",
    "PMI_FD",
]


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, "single"),
        ({"PMI_RANK": "0"}, "mpi"),
        ({"OMPI_COMM_WORLD_RANK": "3"}, "mpi"),
        ({"PMIX_RANK": "1"}, "mpi"),
        ({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}, "single"),
        (dict.fromkeys(topology.TORCH_VARIABLES, "1"), "environment"),
        ({"TORCHELASTIC_RUN_ID": "none", "PMI_RANK": "0"}, "torchrun"),
    ],
)
def test_launcher_is_told_by_the_environment(monkeypatch, variables, expected):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert topology.launcher() == expected


def test_mpi_variables_are_not_meant_for_a_rank_s_own_children(monkeypatch):
    mine, other = socket.socketpair()
    with mine, other:
        monkeypatch.setenv("PMI_RANK", "0")
        monkeypatch.setenv("PMI_FD", str(mine.fileno()))
        assert topology.launcher() == "mpi"
        code = "from tutorial_lib.distributed import topology; print(topology.launcher())"
        command = [sys.executable, "-c", code]
        child = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    assert child.stdout == "single\n"


def test_local_numbers_follow_from_all_hosts():
    place = topology.Topology(rank=3, world_size=4, host="b")
    found = place.among(["a", "b", "a", "b"])
    assert (found.local_rank, found.local_world_size) == (1, 2)
    assert not found.is_one_host


def test_what_launchers_set_is_told(monkeypatch):
    torch_environment(monkeypatch, OMPI_COMM_WORLD_RANK="3")
    told = topology.launcher_variables()
    assert set(told) >= {*topology.TORCH_VARIABLES, "OMPI_COMM_WORLD_RANK"}
    assert list(told) == sorted(told)
    assert told["RANK"] == "3"
    assert "PATH" not in told


def test_alone_the_world_has_one_rank():
    found = topology.detect()
    assert (found.rank, found.world_size, found.local_world_size) == (0, 1, 1)
    assert found.is_main
    assert found.is_one_host


def torch_environment(monkeypatch, **variables: str) -> None:
    values = {"RANK": "3", "WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    for name, value in {**values, **variables}.items():
        monkeypatch.setenv(name, value)


def test_ranks_set_by_hand_are_taken(monkeypatch):
    torch_environment(monkeypatch, LOCAL_RANK="1", LOCAL_WORLD_SIZE="2")
    found = topology.detect()
    assert (found.rank, found.world_size, found.local_rank, found.local_world_size) == (3, 4, 1, 2)
    assert not found.is_main
    assert not found.is_one_host


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"RANK": "4"}, r"RANK=4 must lie from 0 to WORLD_SIZE-1=3"),
        ({"RANK": "-1"}, r"RANK=-1"),
        ({"WORLD_SIZE": "four"}, r"WORLD_SIZE must be a whole number, but is 'four'"),
        ({"MASTER_PORT": "70000"}, r"MASTER_PORT=70000 must lie from 1 to 65535"),
        ({"RANK": ""}, r"WORLD_SIZE and MASTER_ADDR and MASTER_PORT, but no RANK: set all"),
        ({"WORLD_SIZE": "", "MASTER_PORT": ""}, r"but no WORLD_SIZE and no MASTER_PORT: set"),
        ({"LOCAL_RANK": ""}, r"LOCAL_RANK must be a whole number, but is ''"),
    ],
)
def test_nonsense_in_the_environment_is_named(monkeypatch, variables, message):
    torch_environment(monkeypatch, **variables)
    with pytest.raises(ValueError, match=message):
        topology.detect()


def test_ranks_of_a_host_share_its_cores(monkeypatch):
    monkeypatch.setattr(topology, "available_cores", lambda: 8)
    assert [topology.threads_per_rank(n) for n in (1, 2, 3, 8, 9)] == [8, 4, 2, 1, 1]


def test_available_cores_respect_affinity():
    assert 1 <= topology.available_cores() <= (os.cpu_count() or 1)
