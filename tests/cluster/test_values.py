"""Values travel whole, or at least as their text."""

from __future__ import annotations

import numpy as np
import pytest

from tutorial_lib.cluster.values import RemoteValue, decode, encode


@pytest.mark.parametrize(
    "value", [None, 0, "ü", [1, (2.5, None)], {"a": {1, 2}}, b"\x00", float("inf"), range(3)]
)
def test_plain_values_come_back(value: object) -> None:
    assert decode(encode(value)) == value


def test_arrays_come_back() -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    back = decode(encode({"x": array}))["x"]
    assert back.dtype == array.dtype
    assert np.array_equal(back, array)


def test_tensors_lose_their_history() -> None:
    torch = pytest.importorskip("torch")
    weights = torch.ones(3, requires_grad=True)
    back = decode(encode([weights, weights * 2]))
    assert torch.equal(back[1], torch.full((3,), 2.0))
    assert not any(tensor.requires_grad for tensor in back)


class Silent:
    def __reduce__(self) -> str:
        raise TypeError("no")

    def __repr__(self) -> str:
        raise RuntimeError("no")


def test_values_without_a_pickle_are_shown() -> None:
    value = decode(encode(lambda: 0))
    assert isinstance(value, RemoteValue)
    assert "lambda" in repr(value)
    assert "repr fails" in repr(decode(encode(Silent())))


def test_values_of_classes_unknown_here_are_shown() -> None:
    packed = {"pickle": b"cno_such_module\nThing\n.", "text": "Thing(1)"}
    assert repr(decode(packed)) == "Thing(1)"
