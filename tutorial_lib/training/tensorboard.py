"""Progress for TensorBoard, beside or instead of the printed lines."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from tutorial_lib.distributed import session
from tutorial_lib.training.progress_writer import ProgressWriter, Span, Summary


class TensorBoardProgressWriter(ProgressWriter):
    """Writes losses and metrics to an event file that TensorBoard draws.

    Args:
        freq: Training minibatches between two points; ``None`` = summaries only.
        log_dir: Folder for the event file.
        rank: This rank; ``None`` = the session's.
        model: What to describe in the text tab; or the model and an input of it, whose way through
            the model is drawn in the graph tab.

    Raises:
        ImportError: The package ``tensorboard`` is missing: install it.
        ValueError: A frequency below 1: give ``None`` for summaries only.

    **Distributed:** not collective. Only rank 0 writes; every rank counts.

    **Source:** CNTK's ``TensorBoardProgressWriter``.
    """

    def __init__(
        self,
        freq: int | None = None,
        log_dir: str | Path = ".",
        rank: int | None = None,
        model: nn.Module | tuple[nn.Module, Tensor] | None = None,
    ) -> None:
        if freq is not None and freq < 1:
            raise ValueError(f"freq is {freq}; give 1 or more, or None for summaries only")
        super().__init__(freq)
        ranks = session.current()
        if rank is None and ranks is not None:
            rank = ranks.rank
        self._is_closed = False
        self._writer = None if rank else _open(log_dir)
        if self._writer is not None and isinstance(model, tuple):
            self._writer.add_graph(*model)
        elif self._writer is not None and model is not None:
            self._writer.add_text("model", f"```\n{model}\n```")

    def write_value(self, name: str, value: float, step: int) -> None:
        """Write a number of the user's own.

        Args:
            name: Of the curve.
            value: The number.
            step: Where on the curve.

        Raises:
            RuntimeError: The writer was closed: make another.
        """
        writer = self._open_writer()
        if writer is not None:
            writer.add_scalar(name, value, step)

    def flush(self) -> None:
        """Put on disk what was written so far.

        Raises:
            RuntimeError: The writer was closed: make another.
        """
        writer = self._open_writer()
        if writer is not None:
            writer.flush()

    def close(self) -> None:
        """Put everything on disk and end the file.

        Raises:
            RuntimeError: The writer was closed before: close it once.
        """
        writer = self._open_writer()
        if writer is not None:
            writer.close()
        self._is_closed = True

    def on_training_update(self, span: Span) -> None:
        """Write a point for the minibatches since the last one."""
        step = self.training.total_updates
        self.write_value("minibatch/avg_loss", span.average_loss, step)
        self.write_value("minibatch/avg_metric", span.average_metric, step)

    def on_training_summary(self, summary: Summary) -> None:
        """Write a point for the epoch."""
        self.write_value("summary/avg_loss", summary.span.average_loss, summary.number)
        self.write_value("summary/avg_metric", summary.span.average_metric, summary.number)

    def on_test_update(self, span: Span) -> None:
        """Nothing: single test minibatches make no curve."""

    def on_test_summary(self, summary: Summary) -> None:
        """Write a point for the test, at the training minibatch that it came after."""
        step = self.training.total_updates
        name = "minibatch/test_avg_metric" if step else "summary/test_avg_metric"
        self.write_value(name, summary.span.average_metric, step or summary.number)

    def on_distributed_sync(self, span: Span) -> None:
        """Nothing: synchronisations make no curve."""

    def on_parameter(self, name: str, value: float) -> None:
        """Nothing: CNTK's writer keeps no rates either."""

    def _open_writer(self) -> Any:
        if self._is_closed:
            raise RuntimeError("Attempting to use a closed TensorBoardProgressWriter")
        return self._writer


def _open(log_dir: str | Path) -> Any:
    try:
        module = importlib.import_module("torch.utils.tensorboard")
    except ImportError as error:
        raise ImportError(
            "TensorBoardProgressWriter needs the package tensorboard: pip install tensorboard"
        ) from error
    return module.SummaryWriter(str(log_dir))
