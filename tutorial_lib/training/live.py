"""Watch a training: ``for step in live(300, trainers, generator): ...`` in place of ``range``."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import psutil
import torch
from torch import nn

from tutorial_lib.display.live_board import MIME, LiveBoard, pack_images
from tutorial_lib.display.live_output import LiveOutput, kernel_shell
from tutorial_lib.distributed import session, trace
from tutorial_lib.training.samples import draw_samples
from tutorial_lib.training.trainer import Trainer

SHORTEST_S = 0.25  # between two reports
SHARE = 0.01  # of the time that reports may take


def live(
    steps: int, trainers: Mapping[str, Trainer] | None = None, generator: nn.Module | None = None
) -> Iterator[int]:
    """Count steps, and show meanwhile how the training goes.

    On the ranks of a notebook all of them appear on one board, which the notebook's kernel draws.
    In a process of its own, the board is this process's; in a terminal it is a line.

    Args:
        steps: How many.
        trainers: By name; their losses become curves.
        generator: The plain module, whose samples are shown.

    Yields:
        The number of the step, from 0, as ``range`` does.

    **Distributed:** not collective: nobody waits for the board. Losses and samples are rank 0's.
    """
    view = LiveView(steps, trainers or {}, generator)
    try:
        view.begin()
        for step in range(steps):
            yield step
            view.count()
    finally:
        view.end()


class LiveView:
    """What one rank reports of its training.

    Args:
        steps: How many there will be.
        trainers: See ``live``.
        generator: See ``live``.
    """

    def __init__(
        self, steps: int, trainers: Mapping[str, Trainer], generator: nn.Module | None
    ) -> None:
        ranks = session.current()
        self.steps = steps
        self.step = 0
        self.samples = 0
        self.report_s = 0.0  # spent on reports so far
        self._trainers = trainers
        self._generator = generator
        self._send = _channel(ranks is None or ranks.is_main)
        self._is_main = ranks is None or ranks.is_main
        self._facts = {
            "rank": 0 if ranks is None else ranks.rank,
            "ranks": 1 if ranks is None else ranks.world_size,
            "host": socket.gethostname(),
            "device": "cpu" if ranks is None else str(ranks.device),
            "threads": torch.get_num_threads(),
        }
        self._losses: dict[str, tuple[list[int], list[float]]] = {}
        self._process = psutil.Process()
        self._waited = trace.WaitingTime()
        self._is_measured = ranks is not None and trace.is_known_of(ranks.backend)

    def begin(self) -> None:
        """Start the clock, and say so."""
        self._waited.start()
        self._begun = time.perf_counter()
        self._report(is_over=False)

    def count(self) -> None:
        """One step is done."""
        self.step += 1
        for place, (name, trainer) in enumerate(self._trainers.items()):
            if place == 0:
                self.samples += trainer.previous_minibatch_sample_count
            if self._is_main and trainer.previous_minibatch_sample_count:
                steps, values = self._losses.setdefault(name, ([], []))
                steps.append(self.step)
                values.append(trainer.previous_minibatch_loss_average)
        if time.perf_counter() >= self._due:
            self._report(is_over=False)

    def end(self) -> None:
        """The last report: all steps are done, or an error or interrupt ended them."""
        self._waited.stop()
        self._report(is_over=True)

    def _report(self, is_over: bool) -> None:
        now = time.perf_counter()
        seconds = now - self._begun
        share = self._waited.seconds / seconds if self._is_measured and seconds > 0 else None
        report = {
            **self._facts,
            "step": self.step,
            "steps": self.steps,
            "seconds": seconds,
            "samples": self.samples,
            "memory_bytes": self._process.memory_info().rss,
            "communication": share,
            "is_over": is_over,
        }
        if self._is_main:
            report["losses"], self._losses = self._losses, {}
            if self._generator is not None:
                report["images"] = pack_images(draw_samples(self._generator))
        self._send(report)
        took_s = time.perf_counter() - now
        self.report_s += took_s
        self._due = now + took_s + max(SHORTEST_S, took_s / SHARE)


def _channel(is_main: bool) -> Callable[[dict[str, Any]], None]:
    """Where reports go: to the notebook whose rank this is, or to a board here."""
    shell = kernel_shell()
    if shell is not None and type(shell.kernel).__module__.startswith("ipyparallel."):
        from IPython.display import display

        def send(report: dict[str, Any]) -> None:
            line = f"step {report['step']} of {report['steps']}"
            display({MIME: report, "text/plain": line}, raw=True)

        return send
    if not is_main:
        return lambda report: None
    board, output = LiveBoard(), LiveOutput()

    def draw(report: dict[str, Any]) -> None:
        board.take(report)
        if report["is_over"]:
            output.end(board.bundle())
        elif board.is_due():
            output.show(board.bundle())

    return draw
