"""How long it takes until a fault on a rank is an error in the cell, and until work goes on.

python benchmarks/faults.py                    on 2 ranks, each fault 4 times
python benchmarks/faults.py --ranks 4 --times 20

Prints a Markdown table of medians and worst times. The numbers stand in docs/faults.md.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Callable

from measuring import print_table

from tutorial_lib.cluster import Cluster, Ranks

SET_UP = """
import os, signal, time, torch, torch.distributed as dist
from tutorial_lib.distributed import session
from tutorial_lib.distributed.data_parallel import data_parallel
rank = session.start({backend!r}).rank
wrapped = data_parallel(torch.nn.Linear(20, 30))
"""
STEP = "wrapped(torch.ones(4, 20)).sum().backward()"
WAITS = {"all_reduce": "dist.all_reduce(torch.ones(3))", "backward": STEP}
WORK = {
    "a computation": "while True:\n    torch.ones(200, 200) @ torch.ones(200, 200)",
    "time.sleep": "time.sleep(60)",
    "a data loader": "for _ in torch.utils.data.DataLoader(range(10**9), num_workers=1):\n    pass",
}
DEATHS = {
    "kill -9": "os.kill(os.getpid(), signal.SIGKILL)",
    "a segfault": "import ctypes; ctypes.string_at(0)",
    "os._exit": "os._exit(3)",
}
INTERRUPT_AFTER_S = 1.5

times: dict[str, list[float]] = defaultdict(list)


def timed(name: str, work: Callable[[], object], after_s: float = 0.0) -> None:
    """Note how long some work takes, however it ends."""
    begun = time.monotonic()
    with contextlib.suppress(RuntimeError, KeyboardInterrupt):
        work()
    times[name].append(time.monotonic() - begun - after_s)


def interrupted(name: str, work: Callable[[], object]) -> None:
    """Note how long some work takes after it was interrupted."""
    threading.Timer(INTERRUPT_AFTER_S, os.kill, (os.getpid(), signal.SIGINT)).start()
    timed(name, work, INTERRUPT_AFTER_S)


def waits(ranks: Ranks, backend: str) -> None:
    for name, code in WAITS.items():
        timed(
            f"{backend}: error on a rank, the others in {name}",
            lambda code=code: ranks.run(f"if rank == 1: 1 / 0\n{code}"),
        )
        timed(f"{backend}: the next cell, with new groups", lambda: ranks.run(STEP))
        interrupted(
            f"{backend}: interrupt in {name}",
            lambda code=code: ranks.run(f"if rank == 0: {code}\nelse: time.sleep(60)"),
        )
        ranks.run(STEP)


def work(ranks: Ranks) -> None:
    for name, code in WORK.items():
        interrupted(f"interrupt in {name}", lambda code=code: ranks.run(code))
    differing = f"if rank:\n    dist.barrier()\nelse:\n    {WAITS['all_reduce']}"
    timed("calls that differ", lambda: ranks.run(differing))
    ranks.run(STEP)


def deaths(ranks: Ranks) -> None:
    for name, code in DEATHS.items():
        ranks.run(SET_UP.format(backend=None))
        timed(
            f"death by {name}",
            lambda code=code: ranks.run(f"if rank == 1: {code}\ndist.barrier()"),
        )
        timed("restart", ranks.restart)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--times", type=int, default=4)
    asked = parser.parse_args()
    for backend in ("mpi4py", "gloo"):
        is_mpi = backend == "mpi4py"
        with Cluster(n=asked.ranks, process_group=is_mpi, attach=False) as ranks:
            ranks.run(SET_UP.format(backend=backend))
            for _ in range(asked.times):
                waits(ranks, backend)
                if is_mpi:
                    work(ranks)
    with Cluster(n=asked.ranks, attach=False) as ranks:
        for _ in range(asked.times):
            deaths(ranks)
    print(f"## {asked.ranks} ranks")
    print_table(
        ["", "times", "median, s", "worst, s"],
        (
            [name, str(len(taken)), f"{statistics.median(taken):.2f}", f"{max(taken):.2f}"]
            for name, taken in times.items()
        ),
    )


if __name__ == "__main__":
    main()
