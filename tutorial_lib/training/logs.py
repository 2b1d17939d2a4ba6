"""Callbacks that tell how a training goes: printed lines, CSV, TensorBoard."""

from __future__ import annotations

import csv
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tutorial_lib.training.callbacks import Callback

if TYPE_CHECKING:
    from tutorial_lib.training.fit import Trainer


class StepLog(Callback):
    """Prints, on rank 0, the step's measures, which are means over all ranks' samples.

    Args:
        every: Steps from line to line; 0 prints none.
    """

    def __init__(self, every: int = 1) -> None:
        self.every = every
        self._since_s = time.perf_counter()

    def on_step(self, trainer: Trainer) -> None:
        """Print a line when one is due."""
        if trainer.is_master and self.every and trainer.global_step % self.every == 0:
            now = time.perf_counter()
            of = "" if math.isinf(trainer.total_steps) else f" of {trainer.total_steps:.0f}"
            seconds = f"{now - self._since_s:.1f} s"
            print(f"step {trainer.global_step}{of}: {_told(trainer.logs)} ({seconds})", flush=True)
            self._since_s = now

    def on_validation(self, trainer: Trainer, metrics: Mapping[str, float]) -> None:
        """Print a line."""
        if trainer.is_master and self.every:
            print(f"validation at step {trainer.global_step}: {_told(metrics)}", flush=True)


class CsvLog(Callback):
    """Writes, on rank 0, a row for each logged step and validation.

    Columns: step, epoch, seconds, learning_rate, kind ("training" or "validation"), name, value:
    one row for each measure, so that no column is ever missing. A resumed training drops the rows
    after its checkpoint and goes on.

    Args:
        path: The file.
        every: Steps from row to row.
    """

    COLUMNS = ("step", "epoch", "seconds", "learning_rate", "kind", "name", "value")

    def __init__(self, path: str | os.PathLike[str], every: int = 1) -> None:
        self.path = Path(path)
        self.every = every
        self._start_s = 0.0

    def on_start(self, trainer: Trainer) -> None:
        """Write the header, or keep the rows up to the step that training goes on from."""
        self._start_s = time.perf_counter()
        if not trainer.is_master:
            return
        rows: list[list[str]] = []
        if self.path.exists():
            with open(self.path, newline="", encoding="utf-8") as file:
                old = list(csv.reader(file))[1:]
            rows = [row for row in old if _is_row(row) and int(row[0]) <= trainer.global_step]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([self.COLUMNS, *rows])

    def on_step(self, trainer: Trainer) -> None:
        """Write the step's rows when they are due."""
        if trainer.global_step % self.every == 0:
            self._write(trainer, "training", trainer.logs)

    def on_validation(self, trainer: Trainer, metrics: Mapping[str, float]) -> None:
        """Write the validation's rows."""
        self._write(trainer, "validation", metrics)

    def _write(self, trainer: Trainer, kind: str, measures: Mapping[str, float]) -> None:
        if not trainer.is_master:
            return
        seconds = f"{time.perf_counter() - self._start_s:.3f}"
        start = [trainer.global_step, f"{trainer.epoch:.4f}", seconds, trainer.learning_rate, kind]
        with open(self.path, "a", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([*start, name, value] for name, value in measures.items())


class TensorBoard(Callback):
    """Writes measures for TensorBoard, on rank 0.

    Args:
        folder: Of the run.
        every: Steps from point to point.

    Raises:
        ImportError: TensorBoard is not installed: ``pip install tensorboard``.
    """

    def __init__(self, folder: str | os.PathLike[str], every: int = 1) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            message = "the TensorBoard callback needs a further package: pip install tensorboard"
            raise ImportError(message) from error
        self.folder = Path(folder)
        self.every = every
        self._make_writer = SummaryWriter
        self._writer: Any = None

    def on_start(self, trainer: Trainer) -> None:
        """Open the run; steps after a checkpoint replace what an interrupted run wrote."""
        if trainer.is_master:
            self._writer = self._make_writer(self.folder, purge_step=trainer.global_step + 1)

    def on_step(self, trainer: Trainer) -> None:
        """Write the step's measures when they are due."""
        if trainer.global_step % self.every == 0:
            rates = {"learning_rate": trainer.learning_rate}
            self._write(trainer, "training", {**trainer.logs, **rates})

    def on_validation(self, trainer: Trainer, metrics: Mapping[str, float]) -> None:
        """Write the validation's measures."""
        self._write(trainer, "validation", metrics)

    def on_end(self, trainer: Trainer) -> None:
        """Close the run."""
        if self._writer is not None:
            self._writer.close()

    def _write(self, trainer: Trainer, kind: str, measures: Mapping[str, float]) -> None:
        if self._writer is not None:
            for name, value in measures.items():
                self._writer.add_scalar(f"{kind}/{name}", value, trainer.global_step)


def _told(measures: Mapping[str, float]) -> str:
    return ", ".join(f"{name} = {value:.6f}" for name, value in measures.items())


def _is_row(row: list[str]) -> bool:
    """Whether a row is whole: an interrupted training may have left half of one."""
    return len(row) == len(CsvLog.COLUMNS) and row[0].isdigit()
