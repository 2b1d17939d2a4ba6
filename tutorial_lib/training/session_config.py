"""What a training session does besides training: when it saves, what it measures."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from tutorial_lib.training.feed import Source, Streams

AT_END = sys.maxsize  # the frequency of what is done once, at the end
Callback = Callable[[int, float, int, int], bool | None]


@dataclass(frozen=True)
class CheckpointConfig:
    """When and where a session saves all it needs to go on.

    Args:
        filename: The file.
        frequency: Samples from one checkpoint to the next; None: one at the end; 0: none.
        restore: Whether to go on from the file, if it is there.
        preserve_all: Whether to keep all checkpoints: ``filename`` with 0, 1, ... added to its
            name, and ``filename`` itself at the end.

    **Source:** CNTK's ``CheckpointConfig``.
    """

    filename: str | os.PathLike[str]
    frequency: int | None = None
    restore: bool = True
    preserve_all: bool = False


@dataclass(frozen=True)
class CrossValidationConfig:
    """What a session measures from time to time, and who decides whether it goes on.

    Args:
        minibatch_source: What is measured: from where it stands to its end or to ``max_samples``;
            it is put back there afterwards. None measures nothing.
        frequency: Samples of training from one measurement to the next; None: one at the end;
            0: none.
        minibatch_size: Samples in a minibatch of all ranks.
        callback: ``callback(index, average_error, num_samples, num_minibatches)``, with index 0,
            1, ...; False ends the training, on all ranks, whichever rank says so. The average is
            the criterion's metric, of all ranks' samples.
        max_samples: Samples of a measurement; None for no limit.
        model_inputs_to_streams: See ``TrainingSession``, whose is taken for None.

    **Source:** CNTK's ``CrossValidationConfig``.
    """

    minibatch_source: Source | None = None
    frequency: int | None = None
    minibatch_size: int = 32
    callback: Callback | None = None
    max_samples: int | None = None
    model_inputs_to_streams: Streams | None = None


@dataclass(frozen=True)
class TestConfig:
    """What a session measures when the training is over.

    Args:
        minibatch_source: What is measured, to its end.
        minibatch_size: Samples in a minibatch of all ranks.
        model_inputs_to_streams: See ``TrainingSession``, whose is taken for None.

    **Source:** CNTK's ``TestConfig``.
    """

    __test__: ClassVar[bool] = False  # its name would have pytest collect it

    minibatch_source: Source
    minibatch_size: int = 32
    model_inputs_to_streams: Streams | None = None


@dataclass
class Action:
    """What is done whenever another ``frequency`` samples have been trained on.

    Args:
        frequency: Samples.
        work: Called with 0, 1, ...
        index: What it is called with next.
        done_at: Samples when it was called last.
    """

    frequency: int
    work: Callable[[int], None]
    index: int = 0
    done_at: int = 0

    def start(self, samples: int) -> None:
        """Take all that lies before so many samples for done."""
        self.index, self.done_at = samples // self.frequency, samples

    def act(self, samples: int, is_end: bool) -> None:
        """Do the work if it is due."""
        if samples // self.frequency != self.index or (is_end and samples != self.done_at):
            number = self.index
            self.start(samples)  # first, for the checkpoint is to hold it
            self.work(number)
