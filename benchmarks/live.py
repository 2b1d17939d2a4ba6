"""What it costs a training to be watched: two ranks with and without live().

python benchmarks/live.py        one notebook kernel, 2 ranks: about a minute on two cores

Rounds with and without take turns, on the same ranks. The time of the ranks' and the kernel's
processors is counted too: on a busy machine it says more than the clock.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from typing import Any

from jupyter_client.manager import KernelManager
from measuring import print_table

SET_UP = """
import ast, psutil
from tutorial_lib.cluster import Cluster
ranks = Cluster(n={ranks}).start()
"""
GAN = """%%ranks
import time
from tutorial_lib.training.basic_gan import BasicGan, GanConfig
from tutorial_lib.training.live import live
gan = BasicGan(GanConfig(), is_verbose=False)
trainers = {"discriminator": gan.d_trainer, "generator": gan.g_trainer}
for _ in range(20): gan.step()
"""
ROUND = """%%ranks
begun, cpu = time.perf_counter(), time.process_time()
for _ in {steps}:
    gan.step()
seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
"""
REPORT = """
print(max(ranks.pull("seconds").values()), sum(ranks.pull("cpu").values()),
      sum(psutil.Process().cpu_times()[:2]))
"""


class Notebook:
    """A kernel, as JupyterLab starts it."""

    def __init__(self) -> None:
        self.manager = KernelManager(kernel_name="python3")
        self.manager.kernel_spec.argv[0] = sys.executable
        self.manager.start_kernel()
        self.client: Any = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=120)
        self.drawings = 0

    def run(self, source: str) -> str:
        """Run a cell and return what it printed."""
        printed = []
        self.drawings = 0

        def keep(message: dict[str, Any]) -> None:
            if message["msg_type"] == "stream":
                printed.append(message["content"]["text"])
            elif message["msg_type"] == "error":
                sys.exit("\n".join(message["content"]["traceback"]))
            elif "text/html" in message["content"].get("data", {}):
                self.drawings += 1

        self.client.execute_interactive(source, output_hook=keep, timeout=600)
        return "".join(printed)

    def close(self) -> None:
        """End the kernel and its ranks."""
        self.run("ranks.stop()")
        self.client.stop_channels()
        self.manager.shutdown_kernel()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=100, help="of a round")
    parser.add_argument("--rounds", type=int, default=6)
    options = parser.parse_args()
    notebook = Notebook()
    notebook.run(SET_UP.format(ranks=options.ranks))
    notebook.run(GAN)
    kinds = {
        "without": f"range({options.steps})",
        "with live()": f"live({options.steps}, trainers, gan.generator)",
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in kinds}
    drawings = []
    notebook.run(ROUND.format(steps=kinds["with live()"]))  # imports, first drawing
    kernel_s = float(notebook.run(REPORT).split()[2])
    for number in range(options.rounds):
        for name in list(kinds)[:: 1 if number % 2 else -1]:
            notebook.run(ROUND.format(steps=kinds[name]))
            drawn = notebook.drawings
            wall_s, ranks_s, kernel_now_s = map(float, notebook.run(REPORT).split())
            found[name].append((wall_s, ranks_s + kernel_now_s - kernel_s))
            kernel_s = kernel_now_s
            if name != "without":
                drawings.append(drawn / wall_s)
    notebook.close()
    rows = []
    for name, rounds in found.items():
        wall, cpu = (statistics.median(values) for values in zip(*rounds, strict=True))
        rows.append([name, f"{wall:.2f}", f"{cpu:.2f}"])
    print_table([f"{options.steps} steps", "seconds", "seconds of processors"], rows)
    for place, what in enumerate(("time", "processors' time")):
        ratios = [
            watched[place] / alone[place] - 1
            for alone, watched in zip(found["without"], found["with live()"], strict=True)
        ]
        print(f"\nwatching costs {statistics.median(ratios):+.1%} of the {what} (median of pairs)")
    print(f"\ndrawn {statistics.median(drawings):.1f} times a second")


if __name__ == "__main__":
    main()
