"""The checker follows files that nobody recorded.

They are written by CNTK's rules again, element by element in NumPy: nothing is shared with the
library, it is the specification, written out.
"""

import json
import math
import re

import numpy as np
import pytest

from tutorial_lib.compat.check import main

F = np.float32
IGNORE = 0


def at(argument, minibatch_size, epoch_size, samples):
    """A schedule's value after so many samples, and its reference minibatch size."""
    reference = minibatch_size or 0
    transform = float
    if isinstance(argument, dict):
        epoch_size = argument.get("epoch_size", epoch_size)
        if "per_sample" in argument:
            argument, reference = argument["per_sample"], 1
        elif "time_constant" in argument:
            argument, reference = argument["time_constant"], 1

            def transform(t):
                return math.exp(-1 / t)
        else:
            size = argument.get("minibatch_size")
            reference = reference if size is None else size
            argument = argument["value"]
    if not isinstance(argument, list):
        return transform(argument), reference
    pairs = [item if isinstance(item, list) else [1, item] for item in argument]
    left = samples
    for count, value in pairs:
        if left < count * epoch_size:
            return transform(value), reference
        left -= count * epoch_size
    return transform(pairs[-1][1]), reference


def learn(rule, kwargs, start, gradients, counts):
    """The parameters after each update, and the learning rate then."""
    kwargs = {"momentum": 0.0, "variance_momentum": {"per_sample": 0.9999986111120757}, **kwargs}
    size = kwargs.get("minibatch_size")
    size = IGNORE if size == "IGNORE" else size
    is_mean, gain = size == IGNORE, kwargs.get("unit_gain", True)
    epoch_size = kwargs.get("epoch_size")
    p = np.array(start, F)
    ada, mom, smoothed, samples = np.zeros_like(p), np.zeros_like(p), 0.0, 0
    rows, rates = [], []

    def momentum(name, n):
        value, reference = at(kwargs[name], size, epoch_size, samples)
        return value if reference == 0 else value ** (n / reference)

    for gradient, n in zip(gradients, counts, strict=True):
        g = np.array(gradient, F)
        lr, reference = at(kwargs["lr"], size, epoch_size, samples)
        if reference == 0:
            rate = lr if is_mean else lr / n
        else:
            rate = lr * n / reference if is_mean else lr / reference
        if rate != 0:
            times = 1 if is_mean else n
            if is_mean:
                g = g * F(1 / n)
            threshold = kwargs.get("gradient_clipping_threshold_per_sample", math.inf) * times
            norm = math.sqrt((g.astype(float) ** 2).sum())
            if kwargs.get("gradient_clipping_with_truncation", True):
                g = g.clip(F(-threshold), F(threshold))
            elif norm > threshold:
                g = g * F(threshold / norm)
            g = g + F(kwargs.get("l2_regularization_weight", 0) * times) * p
            m, v = momentum("momentum", n), momentum("variance_momentum", n)
            ug = F(1) - F(m) if gain else F(1)
            if rule == "sgd":
                p = p - F(rate) * g
            elif rule in ("momentum_sgd", "nesterov"):
                step = F(rate * float(ug)) * g
                mom = F(m) * mom + step
                p = p - mom if rule == "momentum_sgd" else p - F(m) * mom - step
            elif rule == "adam":
                smoothed += 1
                mom = F(m) * mom + ug * g
                ada = F(v) * ada + (F(1) - F(v)) * g * g
                scale = math.sqrt(1 - v**smoothed) / (1 - m**smoothed)
                p = p - mom * (F(scale) * (F(1) / (np.sqrt(ada) + F(1e-8)))) * F(rate)
            else:
                smoothed = v * smoothed + (1 - v) * n
                ada = F(v) * ada + (F(1) - F(v)) * g * g
                with np.errstate(divide="ignore"):
                    w = np.minimum(F(math.sqrt(smoothed)) * (F(1) / np.sqrt(ada)), F(10))
                g = np.where(ada != 0, g * w, g)
                if F(m) > 0:
                    g = mom = F(m) * mom + ug * g
                p = p - F(rate) * g
            shrink = F(rate * kwargs.get("l1_regularization_weight", 0) * times)
            p = np.sign(p) * np.maximum(np.abs(p) - shrink, F(0))
            samples += n
        rows.append(p.tolist())
        rates.append(at(kwargs["lr"], size, epoch_size, samples)[0])
    return rows, rates


def quantised(column, bits):
    """A column as its receiver sees it."""
    if bits == 1:
        low = column < 0
        means = [F(part.mean()) if part.size else F(0) for part in (column[low], column[~low])]
        return np.where(low, *means)
    high = F(4 * math.sqrt((column.astype(float) ** 2).mean()))
    if 2 * high < 1e-36:
        return np.zeros_like(column)
    used = 2**bits - 1
    step = F((high + high) / used)
    codes = ((column.astype(float) + high) * used / (2.0 * high)).astype(int).clip(0, used)
    return ((codes + 0.5) * float(step) - high).astype(F)


def aggregate(gradients, residuals, stripe_residual, bits):
    """Each rank's columns (W, columns, rows) summed up, with both residuals going on."""
    count, columns = gradients.shape[:2]
    sent = gradients + residuals
    received = np.array([[quantised(column, bits) for column in own] for own in sent], F)
    residuals[:] = sent - received
    each, rest = divmod(columns, count)
    owners = np.repeat(np.arange(count), [each + (rank < rest) for rank in range(count)])
    total = np.empty_like(stripe_residual)
    for column, owner in enumerate(owners):
        total[column] = received[owner, column]
        for rank in range(count):
            if rank != owner:
                total[column] += received[rank, column]
    total += stripe_residual
    result = np.array([quantised(column, bits) for column in total], F)
    stripe_residual[:] = total - result
    return result


def meet_in_blocks(gradients, n, kw):
    """Block momentum over momentum SGD: (parameters, total) of each rank after each step."""
    workers, steps, _ = gradients.shape
    block, after = kw["block_size"], kw.get("distributed_after", 0)
    default = -block / math.log(1 - 1 / workers) if workers > 1 else 0
    constant = kw.get("block_momentum_as_time_constant", default) / workers
    p = np.tile(np.linspace(-1, 1, gradients.shape[2]).astype(F), (workers, 1))
    mom, previous, smoothed = np.zeros_like(p), p[0].copy(), np.zeros_like(p[0])
    total, seen, rows = 0, 0, []
    own = 0
    for step in range(steps):
        m = 0.95**n
        mom = F(m) * mom + F(0.01 * float(F(1) - F(m))) * gradients[:, step]
        p = p - mom
        own, total = own + n, total + n
        if total >= after:
            seen += n
            if seen >= block // workers:
                bm = math.exp(-seen / constant) if constant else 0
                moved = (previous - p).sum(0)
                rate = kw.get("block_learning_rate", 1)
                smoothed = F(bm) * smoothed + F((1 - bm) * rate) * moved
                previous = previous - smoothed
                if kw.get("use_nestrov_momentum", True):
                    previous = previous - F(bm) * smoothed
                p[:] = previous
                total, seen = own * workers, 0
                if kw.get("reset_sgd_momentum_after_aggregation", True):
                    mom[:] = 0
        rows.append((p.copy(), total))
    return rows


ADAPTIVE = {"momentum": {"per_sample": 0.999}, "variance_momentum": {"per_sample": 0.9999}}
LISTED = {"per_sample": [[2, 0.01], [1, 0.002], 0.005], "epoch_size": 100}
LEARNER_CASES = {
    "sgd list of numbers": ("sgd", {"lr": [0.1, 0.01], "epoch_size": 90}),
    "sgd pairs, k samples": (
        "sgd",
        {"lr": [[1, 0.3], [2, 0.0], 0.1], "epoch_size": 60, "minibatch_size": 8},
    ),
    "sgd norm clipped": (
        "sgd",
        {
            "lr": {"per_sample": 0.01},
            "gradient_clipping_threshold_per_sample": 0.5,
            "gradient_clipping_with_truncation": False,
        },
    ),
    "sgd mean, norm clipped": (
        "sgd",
        {
            "lr": 0.1,
            "minibatch_size": "IGNORE",
            "gradient_clipping_threshold_per_sample": 0.5,
            "gradient_clipping_with_truncation": False,
            "l1_regularization_weight": 0.01,
            "l2_regularization_weight": 0.02,
        },
    ),
    "momentum, both decays": (
        "momentum_sgd",
        {
            "lr": LISTED,
            "momentum": {"time_constant": [[1, 64.0], 640.0], "epoch_size": 150},
            "l1_regularization_weight": 0.001,
            "l2_regularization_weight": 0.002,
            "unit_gain": False,
        },
    ),
    "nesterov, numbers for 16": (
        "nesterov",
        {"lr": 0.05, "momentum": [0.5, 0.9], "epoch_size": 70, "minibatch_size": 16},
    ),
    "nesterov mean": (
        "nesterov",
        {
            "lr": {"value": 0.05, "minibatch_size": 32},
            "momentum": {"value": 0.9, "minibatch_size": 32},
            "minibatch_size": "IGNORE",
            "unit_gain": False,
        },
    ),
    "adam list": ("adam", {"lr": LISTED, **ADAPTIVE, "unit_gain": False}),
    "adam mean, truncated": (
        "adam",
        {
            "lr": 0.01,
            "momentum": 0.9,
            "variance_momentum": 0.99,
            "minibatch_size": "IGNORE",
            "gradient_clipping_threshold_per_sample": 0.1,
        },
    ),
    "adam, long steps": (
        "adam",
        {
            "lr": 1.0,
            "momentum": 0.9,
            "variance_momentum": 0.999,
            "minibatch_size": "IGNORE",
            "unit_gain": False,
        },
    ),
    "fsadagrad, momentum that float32 can't hold": (
        "fsadagrad",
        {"lr": {"per_sample": 0.01}, "momentum": {"per_sample": 0.05}},
    ),
    "fsadagrad, last value for ever": (
        "fsadagrad",
        {"lr": {"per_sample": [[2, 0.01], [0, 0.001]], "epoch_size": 50}, **ADAPTIVE},
    ),
    "fsadagrad list, decays": (
        "fsadagrad",
        {
            "lr": LISTED,
            **ADAPTIVE,
            "l1_regularization_weight": 1e-4,
            "l2_regularization_weight": 1e-4,
        },
    ),
    "fsadagrad norm clipped": (
        "fsadagrad",
        {
            "lr": 0.02,
            "momentum": 0.8,
            "unit_gain": False,
            "gradient_clipping_threshold_per_sample": 0.2,
            "gradient_clipping_with_truncation": False,
        },
    ),
}


def write(path, content):
    path.write_text(json.dumps(content))
    return str(path)


def learners_file(path, noise=0.0):
    stream = np.random.RandomState(0)
    start = stream.randn(6).astype(F)
    counts = stream.randint(1, 40, 20).tolist()
    counts[2::3] = [1] * len(counts[2::3])
    gradients = [(stream.randn(6) * count).astype(F).tolist() for count in counts]
    cases = {}
    for name, (rule, kwargs) in LEARNER_CASES.items():
        rows, rates = learn(rule, kwargs, start, gradients, counts)
        if noise:
            kwargs = {**kwargs, "gaussian_noise_injection_std_dev": noise}
        cases[name] = {
            "learner": rule,
            "kwargs": kwargs,
            "counts": counts,
            "param": rows,
            "lr_after": rates,
        }
    return write(path, {"P0": start.tolist(), "G": gradients, "cases": cases})


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_unseen_learners_are_followed(tmp_path, noise, capsys):
    assert main([learners_file(tmp_path / "learners.json", noise)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(LEARNER_CASES)


@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize("bits", [1, 2, 4, 8, 16])
def test_unseen_sums_are_followed(tmp_path, bits, workers):
    stream = np.random.RandomState(bits)
    rows, columns, steps = 11, 5, 6
    residuals = [np.zeros((workers, columns, rows), F), np.zeros((workers, 1, rows), F)]
    stripes = [np.zeros((columns, rows), F), np.zeros((1, rows), F)]
    parameters = [np.zeros((columns, rows), F), np.zeros((1, rows), F)]
    runs = [{"rank": rank, "n": workers, "bits": bits, "steps": []} for rank in range(workers)]
    for _ in range(steps):
        own = [stream.randn(workers, size, rows).astype(F) for size in (columns, 1)]
        sums = [aggregate(*parts, bits) for parts in zip(own, residuals, stripes, strict=True)]
        parameters = [p - total for p, total in zip(parameters, sums, strict=True)]
        for rank, run in enumerate(runs):
            values = {"gp": own[0][rank], "gb": own[1][rank, 0], "aggp": sums[0]}
            values |= {"aggb": sums[1][0], "p": parameters[0], "b": parameters[1][0]}
            step = {name: value.tolist() for name, value in values.items()}
            run["steps"].append({**step, "cnt": 4 * workers})
    files = [write(tmp_path / f"quant_r{run['rank']}.json", run) for run in runs]
    assert main(files) == 0


@pytest.mark.parametrize(
    "kw",
    [
        {"block_size": 36, "block_learning_rate": 0.7},
        {"block_size": 48, "block_momentum_as_time_constant": 90.0, "use_nestrov_momentum": False},
        {"block_size": 24, "reset_sgd_momentum_after_aggregation": False, "distributed_after": 30},
    ],
)
@pytest.mark.parametrize("workers", [1, 3, 4])
def test_unseen_blocks_are_followed(tmp_path, kw, workers):
    steps = 20
    gradients = np.random.RandomState(workers).randn(workers, steps, 6).astype(F)
    rows = meet_in_blocks(gradients, 4, kw)
    for rank in range(workers):
        recorded = [
            {"g": gradients[rank, step].tolist(), "p": p[rank].tolist(), "cnt": 4, "tot": total}
            | {"ret": True}
            for step, (p, total) in enumerate(rows)
        ]
        run = {"rank": rank, "n": workers, "kw": kw, "steps": recorded}
        file = write(tmp_path / f"bm_r{rank}.json", run)
    assert main([file]) == 0


LEARNER = {"learner": "sgd", "kwargs": {"lr": 0.1}, "counts": [1], "param": [[0.9]]}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"cases": {"a": {**LEARNER, "learner": "rprop"}}}, "case 'a': .*no learner 'rprop'"),
        ({"cases": {"a": {**LEARNER, "kwargs": {"lr": "fast"}}}}, "case 'a': .*fast"),
        ({"cases": {"a": {**LEARNER, "kwargs": {"lr": 1, "gain": 2}}}}, "case 'a': .*gain"),
        ({"cases": {"a": {**LEARNER, "param": [[0.9, 1.0]]}}}, "case 'a': .*numbers"),
        ({"cases": {"a": {**LEARNER, "counts": [1, 2]}}}, "case 'a'"),
        ({"cases": {"a": {"learner": "sgd"}}}, "case 'a': expected the field 'kwargs'"),
        ({"cases": {}}, "field 'cases': expected an object with cases"),
        ({"cases": {"a": LEARNER}, "P0": None}, "case 'a'"),
        ({"cases": {"a": LEARNER}, "G": []}, "case 'a': expected a list with values"),
        ({"steps": [{}], "n": 0, "rank": 0}, "field 'n': expected a whole number"),
        ({"steps": [{}], "n": 1, "rank": 1}, "expected rank 0, found rank 1"),
        ({"steps": [{}], "n": 1, "rank": 0}, "field 'steps': expected the field 'bits'"),
        ({"steps": [{}], "n": 1, "rank": 0, "bits": 3}, "field 'steps': "),
        ({"steps": [{"p": [1.0]}], "n": 1, "rank": 0, "kw": {}}, "block_size"),
        ({"losses": [], "workers": 1}, "expected a list with values"),
        ({"losses": [["D"]], "workers": "two"}, "expected a whole number"),
        ({"losses": [["D"]], "workers": 1}, "field 'losses'"),
    ],
)
def test_a_malformed_file_is_named_with_its_field(tmp_path, capsys, change, said):
    content = {"P0": [1.0], "G": [[1.0]], **change}
    path = write(tmp_path / "recorded_r0.json", content)
    assert main([path]) == 2
    message = capsys.readouterr().err
    assert message.startswith(f"error: {path}")
    assert re.search(said, message)
