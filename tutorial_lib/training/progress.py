"""What training says about itself: CNTK's progress lines, character for character."""

from __future__ import annotations

import time
from pathlib import Path

from tutorial_lib.distributed import session
from tutorial_lib.training.progress_writer import ProgressWriter, Span, Summary, per_sample

HEARTBEAT_S = 10


class ProgressPrinter(ProgressWriter):
    """Prints progress as CNTK does.

    Args:
        freq: See ``ProgressWriter``.
        first: See ``ProgressWriter``.
        tag: Stands in brackets before the loss in summaries.
        log_to_file: File for the lines, instead of standard output; ``rank`` is added to its name.
        rank: This rank; ``None`` = the session's.
        gen_heartbeat: Whether to print ``PROGRESS: 0.00%`` at most every 10 seconds.
        num_epochs: In all, for the summaries.
        test_freq: See ``ProgressWriter``.
        test_first: See ``ProgressWriter``.
        metric_is_pct: Whether the metric is a fraction to show in per cent.
        distributed_freq: See ``ProgressWriter``.
        distributed_first: See ``ProgressWriter``.

    Raises:
        ValueError: A negative frequency: give ``None`` for no lines.
        OSError: The log file can't be written: make its folder.

    **Distributed:** not collective. Rank 0 prints, and the others only write their files (CNTK's
    print as well); every rank counts.

    **Source:** CNTK 2.7's ``ProgressPrinter``.
    """

    def __init__(
        self,
        freq: int | None = None,
        first: int = 0,
        tag: str = "",
        log_to_file: str | Path | None = None,
        rank: int | None = None,
        gen_heartbeat: bool = False,
        num_epochs: int | None = None,
        test_freq: int | None = None,
        test_first: int = 0,
        metric_is_pct: bool = True,
        distributed_freq: int | None = None,
        distributed_first: int = 0,
    ) -> None:
        super().__init__(freq, first, test_freq, test_first, distributed_freq, distributed_first)
        ranks = session.current()
        if rank is None and ranks is not None and ranks.world_size > 1:
            rank = ranks.rank
        self._is_main = not rank
        self.tag = f"[{tag}] " if tag else ""
        self.num_epochs = num_epochs
        self.gen_heartbeat = gen_heartbeat
        self.metric_is_pct = metric_is_pct
        self._last_heartbeat = -float("inf")
        self.log_file: Path | None = None
        if log_to_file is not None:
            name = f"{log_to_file}" + (f"rank{rank}" if rank is not None else "")
            self._print(f"Redirecting log to file {name}")
            self.log_file = Path(name)
            self.log_file.write_text(f"{name}\n")
            epochs = 300 if num_epochs is None else num_epochs
            self.log(f"CNTKCommandTrainInfo: train : {epochs}")
            self.log(f"CNTKCommandTrainInfo: CNTKNoMoreCommands_Total : {epochs}")
            self.log("CNTKCommandTrainBegin: train")
        if freq == 0:
            self.log(" average      since    average      since      examples")
            self.log("    loss       last     metric       last              ")
            self.log(" ------------------------------------------------------")

    def log(self, message: str) -> None:
        """Write a line of the user's own among the others."""
        if self.log_file is None:
            self._print(message)
        else:
            with self.log_file.open("a") as file:
                file.write(f"{message}\n")

    def end_progress_print(self, msg: str = "") -> None:
        """Write the line that ends a training, and a message to the log file, if there is one."""
        self.log("CNTKCommandTrainEnd: train")
        if msg and self.log_file is not None:
            self.log(msg)

    def update(self, samples: int, loss: float, metric: float | None = None) -> None:
        """Count a training minibatch; see ``ProgressWriter.update``."""
        super().update(samples, loss, metric)
        now = time.monotonic()
        if self.gen_heartbeat and now - self._last_heartbeat > HEARTBEAT_S:
            self._last_heartbeat = now
            self._print("PROGRESS: 0.00%")

    def on_training_update(self, span: Span) -> None:
        """Write a line for the minibatches since the last one."""
        if self.training.frequency == 0:
            losses = _columns(span.end.loss, span.end.samples, span.average_loss)
            self.log(self._row(losses, span))
        else:
            loss = f"loss = {span.average_loss:0.6f} * {span.samples:d}"
            self.log(f" {_window(span)}: {loss}, {self._metric(span)};")

    def on_test_update(self, span: Span) -> None:
        """Write a line for the test minibatches since the last one."""
        if self.testing.frequency == 0:
            self.log(self._row(f"{'':8s}   {'':8s}", span))
        else:
            self.log(f" Evaluation {_window(span)}: {self._metric(span)};")

    def on_training_summary(self, summary: Summary) -> None:
        """Write the line that ends an epoch."""
        if self.training.frequency == 0:
            return
        span = summary.span
        of_epochs = "" if self.num_epochs is None else f" of {self.num_epochs}"
        speed = per_sample(span.samples, summary.elapsed_s)
        self.log(
            f"Finished Epoch[{summary.number}{of_epochs}]: "
            f"{self.tag}loss = {span.average_loss:0.6f} * {span.samples}, "
            f"{self._metric(span)} {summary.elapsed_s:0.3f}s ({speed:5.1f} samples/s);"
        )

    def on_test_summary(self, summary: Summary) -> None:
        """Write the line that ends a test."""
        self.log(
            f"Finished Evaluation [{summary.number}]: "
            f"Minibatch[1-{summary.span.updates}]: {self._metric(summary.span)};"
        )

    def on_distributed_sync(self, span: Span) -> None:
        """Write how often the ranks synchronised since the last such line."""
        self.log(
            f"Distributed training: #Syncs elapsed = {span.updates}, "
            f"#Samples elapsed = {span.samples}"
        )

    def on_parameter(self, name: str, value: float) -> None:
        """Write a rate or momentum that changed."""
        self.log(f"{name}: {value}")

    def _metric(self, span: Span) -> str:
        if self.metric_is_pct:
            return f"metric = {span.average_metric * 100:0.2f}% * {span.samples}"
        return f"metric = {span.average_metric:0.6f} * {span.samples}"

    def _row(self, losses: str, span: Span) -> str:
        metrics = _columns(span.end.metric, span.end.samples, span.average_metric)
        return f" {losses}   {metrics}    {span.end.samples:10d}"

    def _print(self, line: str) -> None:
        if self._is_main:
            print(line, flush=True)


def _window(span: Span) -> str:
    return f"Minibatch[{span.start.updates + 1:4d}-{span.end.updates:4d}]"


def _columns(total: float, samples: int, average_since_last: float) -> str:
    return f"{per_sample(total, samples):8.3g}   {average_since_last:8.3g}"
