"""CNTK's DCGAN on MNIST, alone or on all ranks.

    python -m tutorial_lib.training.dcgan                      one process
    mpiexec -n 2 python -m tutorial_lib.training.dcgan         two ranks under MPI
    torchrun --nproc-per-node 2 -m tutorial_lib.training.dcgan the same without MPI

Fast mode trains 5,000 minibatches of 128 samples; docs/dcgan.md says how long that takes and
what it leads to. With ``--checkpoint FILE`` it can be stopped at any time, and goes on from there.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from tutorial_lib.data.errors import DataError
from tutorial_lib.distributed import session
from tutorial_lib.learners.adam import adam
from tutorial_lib.learners.learner import Learner
from tutorial_lib.learners.schedules import (
    learning_parameter_schedule_per_sample,
    momentum_schedule,
)
from tutorial_lib.models.dcgan import Discriminator, Generator, scale_to_unit
from tutorial_lib.training.arguments import at_least_one
from tutorial_lib.training.checkpoint import on_main
from tutorial_lib.training.gan import BasicGan, GanConfig, LossRecord
from tutorial_lib.training.gan_checkpoint import restore_gan, save_gan
from tutorial_lib.training.gan_loop import GanResult, OnStep, run_steps
from tutorial_lib.training.gan_script import config_arguments, gan_parser, write_results
from tutorial_lib.training.progress import ProgressPrinter

NUM_MINIBATCHES = {"fast": 5000, "full": 10_000}
MINIBATCH_SIZE = 128  # of all ranks together
LEARNING_RATE = 0.0002  # per sample
MOMENTUM = 0.5  # per minibatch
NUM_LINES = 25  # of progress, for each network
CHECKPOINT_EVERY = 100


@dataclass(frozen=True)
class DcganConfig(GanConfig):
    """What to train: as ``GanConfig``, with CNTK 206B's lengths.

    Raises:
        ValueError: A replay is asked for: no run of CNTK's DCGAN is recorded update by update.
    """

    num_minibatches: int = NUM_MINIBATCHES["fast"]
    minibatch_size: int = MINIBATCH_SIZE

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.is_cntk_replay:
            raise ValueError(
                "no run of CNTK's DCGAN is recorded update by update: leave is_cntk_replay False"
            )

    def frequency(self) -> int:
        """Steps between two progress lines."""
        return self.progress_frequency or max(1, self.num_minibatches // NUM_LINES)


class Dcgan(BasicGan):
    """Both players of the DCGAN with their trainers.

    Args:
        config: What to train.
        is_verbose: Whether to print progress.

    Raises:
        ValueError: The minibatch has less than two samples for each rank, and one has no
            variance: enlarge it.

    **Distributed:** collective in a session of several ranks. Batch normalisation is each rank's
    own: its samples are normalised by their own statistics. So N ranks don't train exactly as
    one does, and running statistics differ between the ranks, while all weights stay equal.

    **Source:** CNTK 206B.
    """

    generator_updates = 2
    scale = staticmethod(scale_to_unit)

    def __init__(self, config: DcganConfig, is_verbose: bool = True) -> None:
        ranks = session.start()
        if config.minibatch_size < 2 * ranks.world_size:
            raise ValueError(
                f"batch normalisation needs two samples on each rank: {config.minibatch_size} "
                f"are too few for {ranks.world_size} ranks"
            )
        super().__init__(config, is_verbose=False)
        frequency = config.frequency()
        self._printers = (
            {network: ProgressPrinter(frequency) for network in "GD"} if is_verbose else {}
        )

    def networks(self) -> tuple[nn.Module, nn.Module]:
        """Make the generator and the discriminator, equal on all ranks."""
        return Generator(self.config.seed), Discriminator(self.config.seed + 1)

    def rule(self, network: nn.Module) -> Learner:
        """Make the local rule; the variance's momentum is CNTK's default, exp(-1/720000)."""
        return adam(
            network.parameters(),
            lr=learning_parameter_schedule_per_sample(LEARNING_RATE),
            momentum=momentum_schedule(MOMENTUM),
        )

    def judge(self, discriminator: nn.Module, images: torch.Tensor) -> torch.Tensor:
        """Judge n real images and n generated ones, each half normalised by itself."""
        probabilities: torch.Tensor = discriminator(images, batches=2)
        return probabilities

    def step(self) -> list[LossRecord]:
        """Two updates of the discriminator, then two of the generator with one noise.

        Progress counts the last update of each, as CNTK's notebook does.
        """
        records = super().step()
        last = {record.network: record for record in records}
        for network, printer in self._printers.items():
            record = last[network]  # type: ignore[index]
            samples = record.minibatch_samples
            printer.update(samples, record.loss_average * samples)
        return records


def train_dcgan(
    config: DcganConfig | None = None,
    on_step: OnStep | None = None,
    is_verbose: bool = True,
    checkpoint: str | Path | None = None,
    checkpoint_every: int = CHECKPOINT_EVERY,
) -> GanResult:
    """Train the DCGAN.

    Args:
        config: What to train; None for fast mode.
        on_step: Called after each step with its number, from 1, and the result so far.
        is_verbose: Whether rank 0 prints progress.
        checkpoint: File to save to, and to go on from if it is there.
        checkpoint_every: Steps between two savings; there is one at the end too.

    Returns:
        Networks, losses and time.

    Raises:
        DataError: The data folder doesn't hold MNIST, or the checkpoint is another training's;
            the message says what to do.
        ValueError: See ``Dcgan``.
        OSError: Rank 0 can't write the checkpoint.

    **Distributed:** collective in a session of several ranks; rank 0 reads and writes the file.

    **Source:** CNTK 206B.
    """
    gan = Dcgan(config or DcganConfig(), is_verbose)
    if checkpoint is None:
        return run_steps(gan, on_step)

    def save_and_tell(number: int, result: GanResult) -> None:
        if number % checkpoint_every == 0 or number == gan.config.num_minibatches:
            save_gan(gan, checkpoint, result)
        if on_step is not None:
            on_step(number, result)

    is_begun = on_main(lambda: Path(checkpoint).is_file())
    return run_steps(gan, save_and_tell, restore_gan(gan, checkpoint) if is_begun else None)


def main(arguments: list[str] | None = None) -> None:
    """Run the script; see ``--help``."""
    parser = gan_parser("dcgan", "Train CNTK's DCGAN on MNIST.", NUM_MINIBATCHES, MINIBATCH_SIZE)
    parser.add_argument(
        "--checkpoint", metavar="FILE", help="save there, and go on from what is there"
    )
    parser.add_argument(
        "--checkpoint-every",
        type=at_least_one,
        default=CHECKPOINT_EVERY,
        metavar="N",
        help="minibatches between two savings (default: %(default)s)",
    )
    options = parser.parse_args(arguments)
    config = DcganConfig(**config_arguments(options, NUM_MINIBATCHES))
    with session.script(options.backend) as ranks:
        try:
            result = train_dcgan(
                config,
                checkpoint=options.checkpoint,
                checkpoint_every=options.checkpoint_every,
            )
        except (DataError, ValueError) as error:
            sys.exit(f"error: {error}")
        write_results(result, config, ranks, options)


if __name__ == "__main__":
    main()
