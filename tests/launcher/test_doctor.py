"""The doctor on this machine, and on machines that are made to look ill."""

import importlib.metadata
import socket
import sys
from pathlib import Path

import pytest

from tutorial_lib.cluster.errors import MpiError
from tutorial_lib.cluster.mpi_flavour import MpiFlavour
from tutorial_lib.display.findings import Verdict
from tutorial_lib.launcher import doctor

MPIEXEC = str(Path(sys.executable).parent / "mpiexec")
MPICH = MpiFlavour(MPIEXEC, "MPICH", (5, 0, 2))


@pytest.mark.mpi
def test_every_finding_is_one_line_and_this_machine_is_ready():
    findings = list(doctor.examine())
    subjects = [finding.subject for finding in findings]
    assert len(set(subjects)) == len(subjects)
    assert subjects[-1] == "All-reduce"
    assert all("\n" not in str(finding) for finding in findings)
    assert [str(f) for f in findings if f.verdict is Verdict.FIX] == []


def test_no_mpi_ends_the_report_with_what_to_install(monkeypatch):
    def nowhere() -> MpiFlavour:
        raise MpiError("no mpiexec: install an MPI")

    monkeypatch.setattr(doctor, "detect", nowhere)
    last = list(doctor.examine())[-1]
    assert (last.verdict, last.subject) == (Verdict.FIX, "MPI")
    assert "install" in last.text


@pytest.mark.mpi
def test_processes_that_do_not_know_of_each_other_are_found_out(tmp_path):
    alone = tmp_path / "mpiexec"
    alone.write_text('#!/bin/sh\nshift 2; for i in 1 2; do "$@" & done; wait\n')
    alone.chmod(0o755)
    finding = doctor.all_reduce(MpiFlavour(str(alone), "unknown MPI", ()))
    assert finding.verdict is Verdict.FIX
    assert "each alone" in finding.text


def test_an_mpiexec_that_fails_is_quoted():
    finding = doctor.all_reduce(MpiFlavour("/bin/false", "unknown MPI", ()))
    assert finding.verdict is Verdict.FIX
    assert "exit status 1" in finding.text


@pytest.mark.mpi
def test_mpi4py_of_another_family_is_named():
    finding = doctor.library(MpiFlavour("/opt/openmpi/bin/mpiexec", "Open MPI", (5, 0, 2)))
    assert finding.verdict is Verdict.FIX
    assert "MPICH" in finding.text
    assert "Open MPI" in finding.text


def test_a_missing_package_is_named(monkeypatch):
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    assert doctor.packages().verdict is Verdict.FIX
    assert doctor.jupyter().verdict is Verdict.FIX
    assert doctor.tiles().verdict is Verdict.NOTE


def test_what_breaks_while_looking_is_a_finding(monkeypatch):
    def half_there() -> int:
        raise ImportError("libtorch.so:\nno such file")

    monkeypatch.setattr(doctor, "available_cores", half_there)
    finding = doctor._look(doctor.cores)
    assert (finding.verdict, finding.subject) == (Verdict.FIX, "Cores")
    assert "ImportError: libtorch.so: no such file" in finding.text


def test_graphics_cards_are_told_with_nccl(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda i: "Card")
    monkeypatch.setattr("torch.cuda.nccl.version", lambda: (2, 27, 3))
    monkeypatch.setattr("torch.distributed.is_nccl_available", lambda: True)
    assert "2 of Card, NCCL 2.27.3, for at most 2 rank(s)" in doctor.gpus().text
    monkeypatch.setattr("torch.distributed.is_nccl_available", lambda: False)
    assert doctor.gpus().verdict is Verdict.NOTE


@pytest.mark.skipif(sys.platform != "linux", reason="/dev/shm is Linux's")
def test_too_little_shared_memory_is_to_be_mended(monkeypatch, tmp_path):
    assert doctor.shared_memory(tmp_path).verdict is Verdict.OK
    assert doctor.shared_memory(tmp_path / "missing").verdict is Verdict.FIX
    monkeypatch.setattr(doctor, "NEEDED_SHARED_BYTES", 1 << 62)
    assert "--shm-size" in doctor.shared_memory(tmp_path).text


def test_a_host_name_without_an_address_is_to_be_mended(monkeypatch):
    def unknown(host: str) -> str:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "gethostbyname", unknown)
    finding = doctor.network("nobody")
    assert finding.verdict is Verdict.FIX
    assert "127.0.1.1 nobody" in finding.text


def test_little_memory_and_a_single_core_are_worth_a_note(monkeypatch):
    monkeypatch.setattr(doctor, "NEEDED_MEMORY_BYTES", 1 << 62)
    assert doctor.memory().verdict is Verdict.NOTE
    monkeypatch.setattr(doctor, "available_cores", lambda: 1)
    assert doctor.cores().verdict is Verdict.NOTE
