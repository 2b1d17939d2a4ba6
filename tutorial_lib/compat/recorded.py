"""Runs recorded from CNTK 2.7, done again by this library's own classes."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tutorial_lib.data.errors import DataError
from tutorial_lib.learners import schedules
from tutorial_lib.learners.adam import adam
from tutorial_lib.learners.block_momentum import block_momentum_distributed_learner
from tutorial_lib.learners.data_parallel import data_parallel_distributed_learner
from tutorial_lib.learners.fsadagrad import fsadagrad
from tutorial_lib.learners.sgd import momentum_sgd, nesterov, sgd
from tutorial_lib.learners.simulation import run_ranks

LEARNERS: dict[str, Callable[..., Any]] = {
    rule.__name__: rule for rule in (sgd, momentum_sgd, nesterov, adam, fsadagrad)
}
RUN_TIMEOUT_S = 600.0


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
        apart = (mine - theirs).abs().nan_to_num(nan=math.inf)
        allowed = absolute + relative * theirs.abs()
        self.worst = max(self.worst, apart.max().item())
        self.share = max(self.share, (apart / allowed).max().item())

    @property
    def is_followed(self) -> bool:
        """Whether all differences are allowed."""
        return self.share <= 1


def compare(path: Path) -> Iterator[Comparison]:
    """Do a recorded file's cases again.

    Args:
        path: ``learners.json``, or one rank's ``quant_*``, ``bm_*`` or ``gan_*`` file, or another
            of the same form. Of a run on several ranks, the others' files stand beside it.

    Yields:
        A comparison per case.

    Raises:
        DataError: The file, or another rank's, is missing or of no such form.
    """
    content = _read(path)
    if {"P0", "G", "cases"} <= content.keys():
        for name in content["cases"]:
            yield compare_learner(name, content)
    elif "losses" in content and "workers" in content:
        yield compare_gan(path, content)
    elif "steps" in content and "n" in content:
        runs = [_read(_of_rank(path, rank)) for rank in range(content["n"])]
        name = re.sub(r"_r\d+$", "", path.stem)
        yield (compare_block_momentum if "kw" in content else compare_quantized)(name, runs)
    else:
        raise DataError(
            path,
            "a recorded run: learners, quantised sums, block momentum or a GAN's losses",
            f"JSON with the keys {sorted(content)}",
            "Give one of the recorded files",
        )


def compare_learner(name: str, content: dict[str, Any]) -> Comparison:
    """Follow a local learner's parameters and rate, update by update."""
    case, result = content["cases"][name], Comparison(name)
    parameter = torch.tensor(content["P0"], requires_grad=True)
    arguments = {key: _argument(value) for key, value in case["kwargs"].items()}
    learner = LEARNERS[case["learner"]]([parameter], **arguments)
    rates = case.get("lr_after", [None] * len(case["counts"]))
    for gradient, count, expected, rate in zip(
        content["G"], case["counts"], case["param"], rates, strict=False
    ):
        parameter.grad = torch.tensor(gradient)
        learner.update(count)
        result.add(parameter, expected, 3e-8, 2.0**-22)
        if rate is not None:
            result.add(learner.learning_rate(), rate, 1e-300, 1e-12)
    return result


def compare_quantized(name: str, runs: list[dict[str, Any]]) -> Comparison:
    """Follow quantised sums, and the parameters of plain SGD on them, on all ranks."""
    bits, result = runs[0]["bits"], Comparison(name)
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
                result.add(ours, step[key], tolerance * (1 if key.startswith("agg") else 10))
                if not torch.equal(ours, of_rank_0):
                    result.share = math.inf
    return result


def compare_block_momentum(name: str, runs: list[dict[str, Any]]) -> Comparison:
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


def compare_gan(path: Path, content: dict[str, Any]) -> Comparison:
    """Train the GAN again, on real ranks, and follow its first losses."""
    result, workers = Comparison(path.stem), content["workers"]
    quantized = re.search(r"quant(\d+)bit", path.stem)
    bits = int(quantized[1]) if quantized else 32
    recorded = content["losses"][:30]
    with tempfile.TemporaryDirectory() as folder:
        losses = Path(folder) / "losses.json"
        arguments = ["--replay-cntk", "--minibatches", "10", "--losses", str(losses)]
        arguments += ["--num-quantization-bits", str(bits)]
        ranks = ["torch.distributed.run", "--standalone", f"--nproc-per-node={workers}", "-m"]
        command = [sys.executable, "-m", *ranks, "tutorial_lib.training.basic_gan", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_TIMEOUT_S)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
        ours = json.loads(losses.read_text(encoding="utf-8"))["losses"]
    for number, (mine, theirs) in enumerate(zip(ours, recorded, strict=False), 1):
        result.add(mine[1], theirs[1], _gan_tolerance(number, workers, bits))
        if [mine[0], *mine[2:]] != [theirs[0], *theirs[2:]]:
            result.share = math.inf
    return result


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
            return schedules.momentum_as_time_constant_schedule(constant)
        case {"value": values}:
            return schedules.learning_parameter_schedule(
                values, value.get("minibatch_size"), value.get("epoch_size")
            )
    return value


def _of_rank(path: Path, rank: int) -> Path:
    return path.with_name(re.sub(r"_r\d+$", f"_r{rank}", path.stem) + path.suffix)


def _read(path: Path) -> dict[str, Any]:
    remedy = "Give recorded files, with those of all ranks side by side"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(path, "a recorded file", "nothing there", remedy) from None
    except (OSError, ValueError) as error:
        raise DataError(path, "a recorded JSON file", str(error), remedy) from error
    if not isinstance(content, dict):
        raise DataError(path, "a recorded JSON object", type(content).__name__, remedy)
    return content
