"""Runs recorded from CNTK 2.7, done again by this library's own classes."""

from __future__ import annotations

import contextlib
import json
import math
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tutorial_lib.compat.recorded_file import REMEDY, Fields, read_ranks, read_recorded
from tutorial_lib.data.errors import DataError
from tutorial_lib.learners import schedules
from tutorial_lib.learners.adam import adam
from tutorial_lib.learners.block_momentum import block_momentum_distributed_learner
from tutorial_lib.learners.data_parallel import data_parallel_distributed_learner
from tutorial_lib.learners.fsadagrad import fsadagrad
from tutorial_lib.learners.sgd import momentum_sgd, nesterov, sgd
from tutorial_lib.learners.simulation import run_ranks
from tutorial_lib.training.gan import LossRecord

LEARNERS: dict[str, Callable[..., Any]] = {
    rule.__name__: rule for rule in (sgd, momentum_sgd, nesterov, adam, fsadagrad)
}
RUN_TIMEOUT_S = 600.0  # for the recorded updates of a GAN
ENDING_TIMEOUT_S = 60.0  # for its ranks to end when they are told to
LARGEST_NOISE = 6.0  # standard deviations that injected noise may reach
USUAL_SIZE = 3.0  # root mean square of sums for which the tolerances are meant


@dataclass
class Comparison:
    """How far one recorded case and ours are apart.

    Attributes:
        case: Its name.
        worst: Largest difference.
        share: Largest share of what is allowed, 1 at most for a case that is followed.
    """

    case: str
    worst: float = 0.0
    share: float = 0.0

    def add(self, ours: Any, recorded: Any, absolute: float, relative: float = 0.0) -> None:
        """Compare numbers.

        Args:
            ours: A number, a list of them or a tensor.
            recorded: As many.
            absolute: Allowed difference, plus
            relative: so much of the recorded number's magnitude.
        """
        mine = torch.as_tensor(ours).detach().double()
        theirs = torch.as_tensor(recorded).double()
        if mine.shape != theirs.shape:
            raise ValueError(f"{self.case}: {tuple(mine.shape)} numbers for {tuple(theirs.shape)}")
        # Equal infinities are 0 apart, and so are two that are no numbers.
        same = (mine == theirs) | (mine.isnan() & theirs.isnan())
        apart = _finite_or_inf(mine - theirs).masked_fill(same, 0)
        allowed = absolute + relative * theirs.abs()
        share = _finite_or_inf(apart / allowed).masked_fill(same, 0)
        self.worst = max(self.worst, apart.max().item())
        self.share = max(self.share, share.max().item())

    @property
    def is_followed(self) -> bool:
        """Whether all differences are allowed."""
        return self.share <= 1


def comparisons(path: Path) -> Iterator[Callable[[], Comparison]]:
    """Prepare to do a recorded file's cases again.

    Args:
        path: ``learners.json``, or one rank's ``quant_*``, ``bm_*`` or ``gan_*`` file, or another
            of the same form. Of a run on several ranks, the others' files stand beside it.

    Yields:
        What makes the comparison, per case; it raises ``DataError`` too.

    Raises:
        DataError: The file, or another rank's, is missing or of no such form; the message names
            the field.
    """
    content = read_recorded(path)
    if "cases" in content:
        cases = content["cases"]
        if not isinstance(cases, Fields) or not cases:
            found = repr(cases)[:60]
            raise DataError(path, "an object with cases", found, REMEDY, "field 'cases'")
        for name in cases:
            work = partial(compare_learner, name, content)
            yield partial(_checked, path, f"case {name!r}", work)
    elif "losses" in content:
        yield partial(_checked, path, "field 'losses'", partial(compare_gan, path, content))
    elif "steps" in content:
        runs, name = read_ranks(path), re.sub(r"_r\d+$", "", path.stem)
        compare_steps = compare_block_momentum if "kw" in content else compare_quantized
        yield partial(_checked, path, "field 'steps'", partial(compare_steps, name, runs))
    else:
        raise DataError(
            path,
            "a recorded run: learners, quantised sums, block momentum or a GAN's losses",
            f"JSON with the keys {sorted(content)}",
            "Give one of the recorded files",
        )


def compare(path: Path) -> Iterator[Comparison]:
    """Do a recorded file's cases again, up to the first that can't be done; see above."""
    for make in comparisons(path):
        yield make()


def _finite_or_inf(values: Tensor) -> Tensor:
    """Magnitudes, infinite where there is none."""
    return values.abs().nan_to_num(nan=math.inf, posinf=math.inf)


def _checked(path: Path, where: str, work: Callable[[], Comparison]) -> Comparison:
    """Say where in a file is what our classes, or torch, refuse."""
    try:
        return work()
    except DataError as error:
        raise DataError(path, error.expected, error.found, REMEDY, where) from error
    except Exception as error:
        expected = "numbers and arguments of a recorded run"
        raise DataError(path, expected, f"what can't be run ({error})", REMEDY, where) from error


def compare_learner(name: str, content: Fields) -> Comparison:
    """Follow a local learner's parameters and rate, update by update.

    Injected noise has another stream here than in CNTK: as much as both may add is allowed.
    """
    case, result = content["cases"][name], Comparison(name)
    rule = LEARNERS.get(case["learner"])
    if rule is None:
        raise ValueError(f"no learner {case['learner']!r}; there are {', '.join(LEARNERS)}")
    parameter = torch.tensor(content["P0"], requires_grad=True)
    learner = rule([parameter], **{key: _argument(value) for key, value in case["kwargs"].items()})
    noise = max(learner.param_groups[0]["gaussian_noise_injection_std_dev_schedule"].values)
    counts = case.rows("counts")
    rates = case.get("lr_after", [None] * len(counts))
    gradients = content.rows("G")[: len(counts)]
    for update, (gradient, count, expected, rate) in enumerate(
        zip(gradients, counts, case.rows("param"), rates, strict=True), 1
    ):
        parameter.grad = torch.tensor(gradient)
        if count:
            learner.update(count)
        added = LARGEST_NOISE * noise * math.sqrt(2 * update)
        result.add(parameter, expected, 3e-8 + added, 2.0**-22)
        if rate is not None:
            result.add(learner.learning_rate(), rate, 1e-300, 1e-12)
    return result


def _largeness(recorded: Any) -> float:
    """By how much values are larger than those for which the tolerances are meant."""
    values = torch.tensor(recorded, dtype=torch.float64)
    return max(1.0, float(values.square().mean().sqrt().nan_to_num(0)) / USUAL_SIZE)


def compare_quantized(name: str, runs: list[Fields]) -> Comparison:
    """Follow quantised sums, and the parameters of plain SGD on them, on all ranks."""
    bits, result = runs[0].count("bits"), Comparison(name)
    tolerance = 6e-4 if bits == 16 else 2e-5

    def run(rank: int) -> list[tuple[Tensor, ...]]:
        steps = runs[rank]["steps"]
        # CNTK's matrix is (in, out), a torch layer's weight is (out, in).
        weight = torch.zeros_like(torch.tensor(steps[0]["gp"]).t()).requires_grad_()
        bias = torch.zeros_like(torch.tensor(steps[0]["gb"])).requires_grad_()
        rate = schedules.learning_parameter_schedule_per_sample(1.0)
        learner = data_parallel_distributed_learner(sgd([weight, bias], rate), 0, bits)
        rows: list[tuple[Tensor, ...]] = []
        for step in steps:
            weight.grad = torch.tensor(step["gp"]).t().contiguous()
            bias.grad = torch.tensor(step["gb"])
            learner.reduce([weight, bias], [weight.grad, bias.grad])
            learner.update(step["cnt"])
            rows.append(
                (
                    weight.grad.t().clone(),
                    bias.grad.clone(),
                    weight.detach().t().clone(),
                    bias.detach().clone(),
                )
            )
        return rows

    ranks = run_ranks(len(runs), run)
    for own, recorded in zip(ranks, runs, strict=True):
        for row, first, step in zip(own, ranks[0], recorded["steps"], strict=True):
            for ours, of_rank_0, key in zip(row, first, ("aggp", "aggb", "p", "b"), strict=True):
                # Parameters are sums of all sums so far, and so are their errors.
                factor = 1.0 if key.startswith("agg") else 10.0
                result.add(ours, step[key], tolerance * factor * _largeness(step[key]))
                if not torch.allclose(ours, of_rank_0, rtol=0, atol=0, equal_nan=True):
                    result.share = math.inf
    return result


def compare_block_momentum(name: str, runs: list[Fields]) -> Comparison:
    """Follow parameters and counts of ranks that meet after blocks."""
    result = Comparison(name)

    def run(rank: int) -> list[tuple[Tensor, int, bool]]:
        steps = runs[rank]["steps"]
        parameter = torch.linspace(-1, 1, len(steps[0]["p"])).requires_grad_()
        rule = momentum_sgd(
            [parameter],
            schedules.learning_parameter_schedule_per_sample(0.01),
            schedules.momentum_schedule_per_sample(0.95),
        )
        learner = block_momentum_distributed_learner(rule, **runs[rank]["kw"])
        rows = []
        for step in steps:
            parameter.grad = torch.tensor(step["g"])
            is_updated = learner.update(step["cnt"])
            total = learner.total_number_of_samples_seen
            rows.append((parameter.detach().clone(), total, is_updated))
        return rows

    for own, recorded in zip(run_ranks(len(runs), run), runs, strict=True):
        for (parameter, total, is_updated), step in zip(own, recorded["steps"], strict=True):
            result.add(parameter, step["p"], 5e-7)
            if (total, is_updated) != (step["tot"], step["ret"]):
                result.share = math.inf
    return result


def compare_gan(path: Path, content: Fields) -> Comparison:
    """Train the GAN again, on real ranks, and follow its first losses."""
    result, workers = Comparison(path.stem), content.count("workers")
    quantized = re.search(r"quant(\d+)bit", path.stem)
    bits = int(quantized[1]) if quantized else 32
    recorded = content.rows("losses")[:30]
    if not all(len(row) == len(LossRecord._fields) for row in recorded):
        raise ValueError(f"a loss is a list of {', '.join(LossRecord._fields)}")
    with tempfile.TemporaryDirectory() as folder:
        losses = Path(folder) / "losses.json"
        arguments = ["--replay-cntk", "--minibatches", "10", "--losses", str(losses)]
        arguments += ["--num-quantization-bits", str(bits)]
        ranks = ["torch.distributed.run", "--standalone", f"--nproc-per-node={workers}", "-m"]
        command = [sys.executable, "-m", *ranks, "tutorial_lib.training.basic_gan", *arguments]
        try:
            _run(command)
        except subprocess.TimeoutExpired as error:
            raise RuntimeError(f"{error}: are there cores for {workers} ranks?") from error
        ours = json.loads(losses.read_text(encoding="utf-8"))["losses"]
    for number, (mine, theirs) in enumerate(zip(ours, recorded, strict=False), 1):
        result.add(mine[1], theirs[1], _gan_tolerance(number, workers, bits))
        if [mine[0], *mine[2:]] != [theirs[0], *theirs[2:]]:
            result.share = math.inf
    return result


def _run(torchrun: list[str]) -> None:
    """Run ranks to their end, and leave none behind if that takes too long or is interrupted."""
    with subprocess.Popen(
        torchrun, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            _, errors = process.communicate(timeout=RUN_TIMEOUT_S)
        except BaseException:
            process.terminate()  # and it ends its ranks, which a kill would leave alone
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=ENDING_TIMEOUT_S)
            process.kill()
            raise
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(torchrun)} failed:\n{errors[-2000:]}")


def _gan_tolerance(update: int, workers: int, bits: int) -> float:
    """How far float32 lets a loss drift by an update: sums in another order, rounded bits."""
    if bits < 32:
        return 2e-6 if update <= 6 else 2e-3
    if workers in (1, 4):
        return 1e-6
    return 2e-6 if update <= 10 else 2e-5


def _argument(value: Any) -> Any:
    """A learner's argument as a recorded file has it."""
    match value:
        case "IGNORE":
            return schedules.IGNORE
        case {"per_sample": values}:
            epoch_size = value.get("epoch_size")
            return schedules.learning_parameter_schedule_per_sample(values, epoch_size)
        case {"time_constant": constant}:
            return schedules.momentum_as_time_constant_schedule(constant, value.get("epoch_size"))
        case {"value": values}:
            size = _argument(value.get("minibatch_size"))
            return schedules.learning_parameter_schedule(values, size, value.get("epoch_size"))
        case str():
            return float(value)  # such as "inf"
    return value
