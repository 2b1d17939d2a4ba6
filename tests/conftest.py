"""Fixtures that every room's tests share: real ranks under mpiexec, and a guard against leaks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
MPIEXEC = Path(sys.executable).parent / "mpiexec"

Launch = Callable[..., subprocess.CompletedProcess[str]]

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # so a shell starts what it ends with &
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return (yield from fail_skips_in_ci())


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return (yield from fail_skips_in_ci())


def fail_skips_in_ci() -> Generator[None, Any, Any]:
    """Fail what skips for a part that is missing; CI has them all, but for a GPU."""
    report = yield
    if report.skipped and os.environ.get("CI") and not hasattr(report, "wasxfail"):
        *_, reason = report.longrepr
        if "GPU" not in reason:
            report.outcome = "failed"
            report.longrepr = f"missing in CI: {reason}"
    return report


@pytest.fixture(scope="session")
def repository() -> Path:
    return REPOSITORY


@pytest.fixture(scope="session")
def mpiexec(tmp_path_factory: pytest.TempPathFactory) -> Launch:
    """``mpiexec(n, *python_arguments)`` runs a Python program on n ranks and returns what it did.

    A run that outlasts ``timeout_s`` is killed with all its ranks and fails the test with what
    it had printed.
    """

    folder = tmp_path_factory.mktemp("ranks")

    def run(
        n: int, *arguments: str | Path, timeout_s: float = 90, check: bool = True, **env: str
    ) -> subprocess.CompletedProcess[str]:
        command = [str(MPIEXEC), "-n", str(n), sys.executable, *map(str, arguments)]
        return run_program(command, folder, timeout_s, check, env)

    return run


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> Launch:
    """``python(*arguments)`` runs Python as ``mpiexec`` does, without MPI."""

    folder = tmp_path_factory.mktemp("python")

    def run(
        *arguments: str | Path, timeout_s: float = 90, check: bool = True, **env: str
    ) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *map(str, arguments)]
        return run_program(command, folder, timeout_s, check, env)

    return run


def run_program(
    command: list[str], cwd: Path, timeout_s: float, check: bool, env: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    ours = {"PYTHONFAULTHANDLER": "1", "OMP_NUM_THREADS": "1"}
    ours["PYTHONUNBUFFERED"] = ""  # or ranks print the ends of lines on their own
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env={**os.environ, **ours, **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        stdout, stderr = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        kill_tree(process.pid)
        stdout, stderr = process.communicate()
        pytest.fail(f"{command} still ran after {timeout_s} s\n{stdout}\n{stderr}")
    if check and process.returncode != 0:
        pytest.fail(f"{command} exited with {process.returncode}\n{stdout}\n{stderr}")
    return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)


def kill_tree(pid: int) -> None:
    """Kill a process and all it started."""
    with suppress(psutil.NoSuchProcess):
        parent = psutil.Process(pid)
        for process in [*parent.children(recursive=True), parent]:
            with suppress(psutil.NoSuchProcess):
                process.kill()


@pytest.fixture(autouse=True)
def no_leaks() -> Iterator[None]:
    """Fail a test that leaves an environment variable or a child process behind."""
    environment = dict(os.environ)
    children = set(psutil.Process().children(recursive=True))
    yield
    names = []
    for process in set(psutil.Process().children(recursive=True)) - children:
        with suppress(psutil.NoSuchProcess):  # it may end meanwhile
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                names.append(f"{process.pid} {' '.join(process.cmdline())[:200]}")
                kill_tree(process.pid)
    changed = {
        name
        for name in environment.keys() | os.environ.keys()
        if environment.get(name) != os.environ.get(name)
        and not name.startswith(("PYTEST_", "TORCHINDUCTOR_"))
    }
    os.environ.clear()
    os.environ.update(environment)
    assert not names, f"the test left processes behind: {names}"
    assert not changed, f"the test changed environment variables: {sorted(changed)}"
