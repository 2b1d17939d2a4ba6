"""Every fault, in a real kernel on real ranks: in time, the right rank named, the next cell works.

``make test`` does each once, on 2 and 4 ranks, on MPI and on gloo; ``make soak`` does each 20 times
on 2 ranks and on 4, in random order, and adds a table of the times to outputs/soak_faults.md;
docs/faults.md has them.
"""

from __future__ import annotations

import ast
import contextlib
import os
import random
import re
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

pytestmark = [pytest.mark.engines, pytest.mark.timeout(240)]

TIMES, DEATHS = 20, 10  # on each backend; a death, which is the same on both, half on each
SLACK_S = 3.0  # beyond what is promised, for a machine that does other work

SET_UP = """%%ranks --setup
import os, signal, time, torch, torch.distributed as dist
from datetime import timedelta
from tutorial_lib.distributed import session
from tutorial_lib.distributed.data_parallel import data_parallel
from tutorial_lib.distributed.sync_check import check_in_sync
rank = session.start({backend!r}).rank
last = dist.get_world_size() - 1
kept = "still here"
model = torch.nn.Linear(20, 30)
wrapped = data_parallel(model)
def step():
    wrapped.zero_grad()
    wrapped(torch.full((4, 20), 1.0 + rank)).sum().backward()
def exhaust_memory():
    group = f"/sys/fs/cgroup/memory/gan-tutorial-{{os.getppid()}}-{{os.getpid()}}"
    os.mkdir(group)
    for name, value in {{"memory.limit_in_bytes": 2**29, "cgroup.procs": os.getpid()}}.items():
        with open(f"{{group}}/{{name}}", "w") as file:
            file.write(str(value))
    bytearray(2**30)
"""
GO_ON = """%%ranks
step()
check_in_sync(model)
kept, model.weight.grad[0, 0].item()
"""


@dataclass(frozen=True)
class Fault:
    """What goes wrong, and what the reader is to see.

    Attributes:
        cell: What runs on the ranks.
        error: Matches the name and the message of the cell's error; LAST stands for the rank.
        promise_s: Within which the error is there.
        said: Matches what the error says besides.
        is_interrupt: It is the reader, who stops the cell.
        is_deadly: A rank's process ends.
        is_for_mpi: It can't be seen on gloo.
    """

    cell: str
    error: str
    promise_s: float
    said: str = ""
    is_interrupt: bool = False
    is_deadly: bool = False
    is_for_mpi: bool = False

    def concerns(self, backend: str) -> bool:
        return backend != "gloo" or not self.is_for_mpi


def failing(wait: str, line: str) -> Fault:
    cell = f"if rank == last:\n    model.weight.data += 1\n    1 / 0\n{wait}"
    said = rf"rank(s 0, 1, 2| 0) (waited in|was released at|were released at) .*line {line}"
    return Fault(cell, r"CellError: rank LAST: ZeroDivisionError: .* \(line 4\)", 2, said)


def interrupted(work: str, said: str) -> Fault:
    return Fault(work, "KeyboardInterrupt: ", 3, said, is_interrupt=True)


def alone(wait: str) -> str:
    """Rank 0 waits for ever, the others don't come."""
    return f"if rank == 0:\n    {wait}\nelse:\n    time.sleep(60)"


def dying(death: str, cause: str) -> Fault:
    cell = f"if rank == last:\n    {death}\nwhile True:\n    step()"
    return Fault(cell, rf"DeadRankError: rank LAST has died \({cause}", 3, is_deadly=True)


FAULTS = {
    "error on a rank, the others in all_reduce": failing(
        "dist.all_reduce(torch.ones(3))", "5 of the cell"
    ),
    "error on a rank, the others in backward": failing("step()", r"14 of cell \[3\]"),
    "calls that differ": Fault(
        "if rank == last:\n    dist.barrier()\nelse:\n    dist.all_reduce(torch.ones(3))",
        r"CellError: rank \d: CollectiveMismatchError",
        2,
        r"calls barrier at line 3 of the cell",
        is_for_mpi=True,
    ),
    "a wait past its time-out of 1 s": Fault(
        "few = dist.new_group(timeout=timedelta(seconds=1))\n"
        "if rank == last:\n    time.sleep(60)\ndist.barrier(few)",
        r"CellError: rank \d: CollectiveTimeoutError",
        4,
        r"rank LAST (is at|was interrupted).*line 4",
        is_for_mpi=True,
    ),
    "interrupt in a computation": interrupted(
        "while True:\n    torch.ones(200, 200) @ torch.ones(200, 200)",
        r"(was|were) interrupted .*line [23]",
    ),
    "interrupt in time.sleep": interrupted("time.sleep(60)", r"(was|were) interrupted .*line 2"),
    "interrupt in a data loader": interrupted(
        "for _ in torch.utils.data.DataLoader(range(10**9), num_workers=1):\n    pass",
        "rank",
    ),
    "interrupt in all_reduce": interrupted(alone("dist.all_reduce(torch.ones(3))"), "rank 0 "),
    "interrupt in backward": interrupted(alone("step()"), "rank 0 "),
    "death by kill -9": dying("os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL: .*memory"),
    "death by a segfault": dying("import ctypes; ctypes.string_at(0)", "SIGSEGV: a memory error"),
    "death by os._exit(3)": dying("os._exit(3)", "exit status 3: it ended by itself"),
    "death by os._exit(0)": dying("os._exit(0)", "exit status 0"),
}
SOAK_FAULTS = dict(FAULTS)
if os.access("/sys/fs/cgroup/memory/cgroup.procs", os.W_OK):
    SOAK_FAULTS["death by lack of memory"] = dying("exhaust_memory()", "SIGKILL: .*memory")
KILLING = ((2, "mpi4py"), (4, "gloo"))  # where `make test` does the deaths, which take longest
CONFIGURATIONS = [(n, backend) for n in (2, 4) for backend in ("mpi4py", "gloo")]
CASES = [
    (configuration, name)
    for configuration in CONFIGURATIONS
    for name, fault in FAULTS.items()
    if fault.concerns(configuration[1]) and (configuration in KILLING or not fault.is_deadly)
]


def in_words(parameter: tuple[int, str] | str) -> str:
    return parameter if isinstance(parameter, str) else "{} ranks on {}".format(*parameter)


class Reader:
    """A notebook with ranks, in which faults are made.

    Args:
        notebook: A kernel.
        n: Number of ranks.
        backend: Of their group.
        processes: Lists the cluster's.
    """

    def __init__(
        self, notebook: Any, n: int, backend: str, processes: Callable[[], list[psutil.Process]]
    ) -> None:
        self.notebook, self.n, self.backend, self.processes = notebook, n, backend, processes
        self.times: dict[str, list[float]] = {}
        options = f"n={n}, process_group={backend == 'mpi4py'}, attach=False"
        self.run("from tutorial_lib.cluster import Cluster")
        self.run(f"ranks = Cluster({options}).start()")
        self.run(SET_UP.format(backend=backend))
        self.goes_on()
        self.number_of_processes = len(processes())
        self.shared_memory = self.mapped()

    def run(self, source: str) -> list[dict[str, Any]]:
        """Run a cell that is to succeed."""
        outputs: list[dict[str, Any]] = self.notebook.run(source)
        errors = [output for output in outputs if output["kind"] == "error"]
        assert not errors, "\n".join(errors[0]["traceback"])
        return outputs

    def goes_on(self) -> None:
        """Take a step of training on all ranks, which keep what they had and agree."""
        shown = self.run(GO_ON)[-1]["data"]["text/plain"]
        value = ("still here", 2.0 * self.n * (self.n + 1))
        assert ast.literal_eval(shown) == dict.fromkeys(range(self.n), value)

    def meets(self, name: str, fault: Fault) -> None:
        """Make a fault, see it reported in time, and go on."""
        cell, begun = f"%%ranks\n{fault.cell}", time.monotonic()
        if fault.is_interrupt:
            outputs, seconds = self.notebook.run_and_interrupt(cell)
        else:
            outputs, seconds = self.notebook.run(cell), time.monotonic() - begun
        self.times.setdefault(name, []).append(seconds)
        assert outputs, "the cell ended without an error"
        error = outputs[-1]
        assert error["kind"] == "error"
        last = str(self.n - 1)
        found = f"{error['ename']}: {error['evalue']}"
        assert re.match(fault.error.replace("LAST", last), found), found
        whole = "\n".join(error["traceback"])
        assert re.search(fault.said.replace("LAST", last), whole), whole
        assert seconds < fault.promise_s + SLACK_S
        begun = time.monotonic()
        if fault.is_deadly:
            self.run("%ranks_restart")
            self.times.setdefault("restart", []).append(time.monotonic() - begun)
        self.goes_on()
        if not fault.is_deadly:
            self.times.setdefault("the next cell", []).append(time.monotonic() - begun)

    def leaves_nothing(self, wait_until: Callable[..., bool]) -> None:
        """No process of what has ended, and nothing that it had mapped in shared memory."""
        count = self.number_of_processes
        assert wait_until(lambda: len(self.processes()) == count, 10), self.processes()
        self.shared_memory |= (now := self.mapped())
        left = [file for file in self.shared_memory - now if Path(file).exists()]
        assert not left, f"left in shared memory: {left}"

    def mapped(self) -> set[str]:
        """The files in /dev/shm that the cluster's processes have mapped."""
        files = set()
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                files |= {m.path for m in process.memory_maps() if m.path.startswith("/dev/shm/")}
        return files


@pytest.fixture(autouse=True)
def no_leaks() -> None:
    """Let ranks that replace dead ones outlive a test; the reader's end counts what is left."""


@pytest.fixture(scope="module", params=CONFIGURATIONS, ids=in_words)
def reader(
    request: pytest.FixtureRequest,
    private_runtime: None,
    new_notebook: Callable[[], Any],
    cluster_processes: Callable[[], list[psutil.Process]],
    wait_until: Callable[..., bool],
) -> Iterator[Reader]:
    notebook = new_notebook()
    try:
        yield Reader(notebook, *request.param, cluster_processes)
    finally:
        notebook.close()
        assert wait_until(lambda: not cluster_processes(), 10), cluster_processes()


@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_reported_in_time_and_work_goes_on(
    reader: Reader, name: str, wait_until: Any
) -> None:
    if ((reader.n, reader.backend), name) not in CASES:
        return  # with reader and name in one parametrize, each test would start ranks anew
    reader.meets(name, FAULTS[name])
    reader.leaves_nothing(wait_until)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_each_fault_many_times(reader: Reader, wait_until: Any, repository: Path) -> None:
    faults = {name: f for name, f in SOAK_FAULTS.items() if f.concerns(reader.backend)}
    order = [name for name, f in faults.items() for _ in range(DEATHS if f.is_deadly else TIMES)]
    random.Random(1).shuffle(order)
    failures = []
    for turn, name in enumerate(order):
        try:
            reader.meets(name, faults[name])
            reader.leaves_nothing(wait_until)
        except AssertionError as error:
            failures.append(f"{turn}: {name}: {error}")
            reader.run("ranks.restart()")
    report(reader, failures, repository / "outputs" / "soak_faults.md")
    assert not failures, "\n".join(failures)


def report(reader: Reader, failures: list[str], file: Path) -> None:
    """Append a table of what one configuration took."""
    lines = [f"## {reader.n} ranks, {reader.backend}: {len(failures)} failures", ""]
    lines += ["| | times | median, s | worst, s | promised, s |", "|---|---:|---:|---:|---:|"]
    for name, taken in reader.times.items():
        promise = f"{SOAK_FAULTS[name].promise_s:g}" if name in SOAK_FAULTS else ""
        middle, worst = statistics.median(taken), max(taken)
        lines.append(f"| {name} | {len(taken)} | {middle:.2f} | {worst:.2f} | {promise} |")
    file.parent.mkdir(exist_ok=True)
    with file.open("a") as out:
        out.write("\n".join([*lines, *failures, "", ""]))
