"""Checks of notebook 05: samples from rank 0."""

from __future__ import annotations

from typing import Any

import numpy as np

from tutorial_lib.exercises.cases import as_numbers, brief, call, expect, require
from tutorial_lib.exercises.verdict import exercise

# May rank 0 do it while the other ranks do something else?
ALONE = {
    "generator(noise)": True,
    "wrapped(noise)": False,
    "wrapped.module(noise)": True,
    "dist.all_reduce(loss)": False,
    "save_generator(file, generator)": True,
    "DistributedDataParallel(generator)": False,
}


@exercise("05.1")
def alone(answer: Any) -> None:
    """The answer tells which calls rank 0 may make alone."""
    require(isinstance(answer, dict), f"expected a dictionary, found {brief(answer)}")
    for name, is_alone in ALONE.items():
        require(name in answer, f"{name!r} is missing")
        require(answer[name] is not ..., f"{name!r} is still ...")
        wrong = (
            "nobody else is needed for it"
            if is_alone
            else "it is a collective: rank 0 would wait for the others"
        )
        require(bool(answer[name]) == is_alone, f"{name!r}: no, {wrong}")


@exercise("05.2")
def to_bytes(answer: Any) -> None:
    """The answer turns the generator's pixels into bytes, the nearest ones, nothing clipped."""
    values = np.array([[-1.0, 1.0, 0.0, -0.5, 0.5]], dtype=np.float32)
    expected = np.array([[0, 255, 128, 64, 191]])
    found = as_numbers(call(answer, values.copy()))
    require(found is not None, "expected an array")
    assert found is not None
    expect(f"pixels {values.tolist()}", found, expected, tolerance=0, hint=_hint(found))
    require(found.dtype == np.uint8, f"expected the type uint8, found {found.dtype}")
    every = np.arange(256, dtype=np.uint8).reshape(1, 256)
    scaled = (2 * (every / np.float32(255)) - 1).astype(np.float32)
    expect("all 256 bytes, scaled to -1...1 and back", call(answer, scaled), every)


def _hint(found: Any) -> str:
    is_clipped = found.size == 5 and found.flat[3] == 0
    is_cut = found.size == 5 and found.flat[2] == 127
    if is_clipped:
        return "The negative half of tanh's range was clipped"
    return "Round to the nearest; a cast to uint8 cuts off" if is_cut else ""
