"""Which mpiexec is taken, what it is, and which flags it gets."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tutorial_lib.cluster import MpiError, mpi_flavour
from tutorial_lib.cluster.mpi_flavour import (
    MpiFlavour,
    are_foreign,
    find_mpiexec,
    flavour_of,
    library_name,
    parse_version,
)

# As recorded from each launcher's `mpiexec --version`.
MPICH_5 = """\
HYDRA build details:
    Version:                                 5.0.2
    Release Date:                            Fri Sep 25 20:45:26 UTC 2026
    CC:                              cc
    Configure options:                       --with-device=ch4:ucx,ofi --with-pm=hydra:gforker
    Process Manager:                         pmi
    Launchers available:                     ssh rsh fork slurm ll lsf sge manual persist
"""
MPICH_3 = """\
HYDRA build details:
    Version:                                 3.3.2
    Release Date:                            Tue Nov 12 21:23:16 CST 2019
    CC:                              x86_64-apple-darwin13.4.0-clang -I/opt/include
"""
OPEN_MPI_4 = """\
mpiexec (OpenRTE) 4.1.8

Report bugs to http://www.open-mpi.org/community/help/
"""
OPEN_MPI_5 = """\
mpiexec (Open MPI) 5.0.11

Report bugs to https://www.open-mpi.org/community/help/
"""
INTEL = """\
Intel(R) MPI Library for Linux* OS, Version 2021.11 Build 20231005 (id: 74c4a23)
Copyright 2003-2023, Intel Corporation.
"""


@pytest.mark.parametrize(
    ("text", "family", "version"),
    [
        (MPICH_5, "MPICH", (5, 0, 2)),
        (MPICH_3, "MPICH", (3, 3, 2)),
        (OPEN_MPI_4, "Open MPI", (4, 1, 8)),
        (OPEN_MPI_5, "Open MPI", (5, 0, 11)),
        (INTEL, "Intel MPI", (2021, 11)),
        ("slurm 23.02", "unknown MPI", ()),
        ("", "unknown MPI", ()),
    ],
)
def test_family_and_version_are_read(text: str, family: str, version: tuple[int, ...]) -> None:
    assert parse_version(text) == (family, version)


def test_each_mpi_gets_the_flags_it_knows() -> None:
    mpich = MpiFlavour("mpiexec", "MPICH", (5, 0, 2))
    open_mpi_4 = MpiFlavour("mpiexec", "Open MPI", (4, 1, 4))
    open_mpi_5 = MpiFlavour("mpiexec", "Open MPI", (5, 0, 11))
    intel = MpiFlavour("mpiexec", "Intel MPI", (2021, 11))
    for is_root in (True, False):
        assert mpich.arguments(is_root) == ["-bind-to", "none"]
        assert intel.arguments(is_root) == []
    assert open_mpi_4.arguments(is_root=False) == ["--oversubscribe", "--bind-to", "none"]
    assert open_mpi_5.arguments(is_root=False) == [
        "--map-by",
        ":OVERSUBSCRIBE",
        "--bind-to",
        "none",
    ]
    for open_mpi in (open_mpi_4, open_mpi_5):
        assert open_mpi.arguments(is_root=True) == [
            "--allow-run-as-root",
            *open_mpi.arguments(is_root=False),
        ]
    assert intel.environment == {"I_MPI_PIN": "0"}
    assert mpich.environment == open_mpi_5.environment == {}
    assert mpich.command(4, "python", "x.py") == [
        *("mpiexec", "-n", "4", "-bind-to", "none"),
        *("python", "x.py"),
    ]


def test_flavour_in_words() -> None:
    assert str(MpiFlavour("mpiexec", "Open MPI", (5, 0, 11))) == "Open MPI 5.0.11"
    assert str(MpiFlavour("mpiexec", "unknown MPI", ())) == "unknown MPI"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("MPICH Version:      5.0.2\nMPICH Release date: ...", "MPICH 5.0.2"),
        ("Open MPI v4.1.8, package: Open MPI x Distribution, ident: 4.1.8", "Open MPI 4.1.8"),
        (
            "Intel(R) MPI Library 2021.11 for Linux* OS\n",
            "Intel(R) MPI Library 2021.11 for Linux* OS",
        ),
    ],
)
def test_library_is_named(text: str, name: str) -> None:
    assert library_name(text) == name


def test_only_open_mpi_and_others_are_foreign_to_each_other() -> None:
    assert are_foreign("Open MPI 4.1.4", "MPICH 5.0.2")
    assert are_foreign("MPICH 5.0.2", "Open MPI 5.0.11")
    for mpiexec, library in [
        ("MPICH 5.0.2", "MPICH 4.2.0"),
        ("MPICH 5.0.2", "Intel(R) MPI Library 2021.11 for Linux* OS"),
        ("Open MPI 5.0.11", "Open MPI 4.1.8"),
        ("unknown MPI", "Open MPI 4.1.8"),
        ("Open MPI 5.0.11", ""),
    ]:
        assert not are_foreign(mpiexec, library)


def program(path: Path, body: str = "exit 0") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A virtual environment whose python is a link, and another folder on the PATH."""
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "venv" / "bin" / "python").symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "venv" / "bin" / "python"))
    monkeypatch.setattr(mpi_flavour.sysconfig, "get_path", lambda name: str(tmp_path / "scripts"))
    monkeypatch.delenv(mpi_flavour.MPIEXEC_VARIABLE, raising=False)
    program(tmp_path / "path" / "mpiexec")
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    return tmp_path


def test_mpiexec_beside_the_interpreter_wins_over_the_path(environments: Path) -> None:
    assert find_mpiexec() == str(environments / "path" / "mpiexec")
    in_scripts = program(environments / "scripts" / "mpiexec")
    assert find_mpiexec() == str(in_scripts)
    beside = program(environments / "venv" / "bin" / "mpiexec")
    assert find_mpiexec() == str(beside)
    assert MpiFlavour(str(beside), "MPICH", ()).is_beside_interpreter
    assert not MpiFlavour(str(environments / "path" / "mpiexec"), "MPICH", ()).is_beside_interpreter


def test_the_users_choice_wins_over_all(
    environments: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(environments / "venv" / "bin" / "mpiexec")
    chosen = program(environments / "site" / "mpirun")
    monkeypatch.setenv(mpi_flavour.MPIEXEC_VARIABLE, str(chosen))
    assert find_mpiexec() == str(chosen)
    monkeypatch.setenv(mpi_flavour.MPIEXEC_VARIABLE, str(environments / "nowhere"))
    with pytest.raises(MpiError, match="nowhere is not a program: correct or unset it"):
        find_mpiexec()


def test_no_mpi_at_all_is_an_error_with_the_remedy(
    environments: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MpiError, match="pip install mpich"):
        find_mpiexec()


def test_launcher_that_does_not_run_is_an_error(tmp_path: Path) -> None:
    broken = program(tmp_path / "mpiexec", "echo 'libhwloc.so: cannot open'; exit 127")
    with pytest.raises(MpiError, match="libhwloc"):
        flavour_of(str(broken))
    with pytest.raises(MpiError, match="does not run"):
        flavour_of(str(tmp_path / "missing"))


def test_mpi_of_this_environment_is_known() -> None:
    flavour = mpi_flavour.detect()
    assert flavour.family != "unknown MPI"
    assert flavour.version
