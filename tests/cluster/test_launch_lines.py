"""Lines to type: what they hold, and that MPICH's means what ``homes`` says."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tutorial_lib.cluster.errors import HostsError
from tutorial_lib.cluster.hosts import read_hosts
from tutorial_lib.cluster.launch_lines import homes, launch_line

TWO = read_hosts("node1:2,node2:2")
UNEQUAL = read_hosts("node1:3,node2:1")
PROGRAM = ["python", "train.py"]


def test_homes() -> None:
    assert homes(TWO, 4) == ["node1", "node1", "node2", "node2"]
    assert homes(TWO, 3) == ["node1", "node1", "node2"]
    assert homes(TWO, 4, is_by_node=True) == ["node1", "node2", "node1", "node2"]
    assert homes(UNEQUAL, 4, is_by_node=True) == ["node1", "node2", "node1", "node1"]


@pytest.mark.parametrize("is_by_node", [False, True])
def test_more_ranks_than_slots_are_refused(is_by_node: bool) -> None:
    with pytest.raises(HostsError, match="5 ranks asked for"):
        homes(TWO, 5, is_by_node)


@pytest.mark.parametrize(
    ("launcher", "is_by_node", "line"),
    [
        ("Open MPI", False, "mpirun -np 4 -host node1:2,node2:2 python train.py"),
        ("Open MPI", True, "mpirun -np 4 --map-by node -host node1:2,node2:2 python train.py"),
        ("MPICH", False, "mpiexec -n 4 -hosts node1:2,node2:2 python train.py"),
        ("MPICH", True, "mpiexec -n 4 -ppn 1 -hosts node1,node2 python train.py"),
        (
            "srun",
            False,
            "srun --nodes=2 --ntasks=4 --ntasks-per-node=2 --nodelist=node1,node2 "
            "--distribution=block python train.py",
        ),
        (
            "srun",
            True,
            "srun --nodes=2 --ntasks=4 --ntasks-per-node=2 --nodelist=node1,node2 "
            "--distribution=cyclic python train.py",
        ),
    ],
)
def test_lines(launcher, is_by_node: bool, line: str) -> None:
    assert launch_line(launcher, TWO, 4, PROGRAM, is_by_node) == line


def test_unequal_slots(tmp_path: Path) -> None:
    assert launch_line("MPICH", UNEQUAL, 4, PROGRAM) == (
        "mpiexec -n 4 -hosts node1:3,node2:1 python train.py"
    )
    with pytest.raises(HostsError, match="MPICH deals out ranks by node only to hosts of equally"):
        launch_line("MPICH", UNEQUAL, 4, PROGRAM, is_by_node=True)
    line = launch_line("srun", UNEQUAL, 4, PROGRAM, is_by_node=True)
    write, run = line.split(" && ")
    assert run == (
        "SLURM_HOSTFILE=ranks.txt srun --ntasks=4 --distribution=arbitrary python train.py"
    )
    subprocess.run(write, shell=True, check=True, cwd=tmp_path)
    assert (tmp_path / "ranks.txt").read_text().split() == ["node1", "node2", "node1", "node1"]


def test_a_program_is_quoted() -> None:
    line = launch_line("MPICH", TWO, 2, ["python", "-c", "print('a b')"])
    assert shlex.split(line)[-3:] == ["python", "-c", "print('a b')"]


def test_no_such_launcher() -> None:
    with pytest.raises(ValueError, match="no launcher 'pvm'; there are Open MPI, MPICH, srun"):
        launch_line("pvm", TWO, 2, PROGRAM)  # type: ignore[arg-type]


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("hosts", "is_by_node", "mapping"),
    [  # Hydra's own words: (first node, nodes, ranks on each), times repeats
        ("localhost:2,127.0.0.1:2", False, "(vector,(0,2,2))"),
        ("localhost:3,127.0.0.1:1", False, "(vector,(0,1,3),1)"),
        ("localhost:2,127.0.0.1:2", True, "(vector,[(0,2,1)]x2)"),
    ],
)
def test_mpich_places_ranks_as_homes_says(python, hosts: str, is_by_node: bool, mapping: str):
    """This machine by two of its names; MPICH says where it puts whom."""
    line = launch_line("MPICH", read_hosts(hosts), 4, ["-v", "true"], is_by_node)
    code = "import subprocess, sys, pathlib; sys.exit(subprocess.run([str(pathlib.Path("
    code += "sys.executable).with_name(sys.argv[1])), *sys.argv[2:]]).returncode)"
    told = python("-c", code, *shlex.split(line), timeout_s=60)
    found = re.findall(r"\(vector,\S*\)(?:x\d+)?[^\s]*", told.stdout + told.stderr)
    assert any(each.startswith(mapping) for each in found), (found[:3], told.stdout[-2000:])
