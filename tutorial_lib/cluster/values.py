"""How values travel from a rank to the notebook: pickled, or as text when they can't leave."""

from __future__ import annotations

import io
import pickle
import sys
from typing import Any

LIMIT_BYTES = 256 * 2**20


class RemoteValue:
    """Stands in the notebook for a value that stayed on its rank; looks as it does there.

    Args:
        text: Its ``repr`` there.
    """

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def encode(value: object) -> dict[str, Any]:
    """Pack a value on a rank.

    Args:
        value: Anything.

    Returns:
        Its pickle, unless it has none or is larger than LIMIT_BYTES, and its text.
    """
    if value is None:
        return {"pickle": None, "text": "None"}
    try:
        text = repr(value)
    except Exception as error:
        text = f"<{type(value).__name__} whose repr fails: {error!r}>"
    data = io.BytesIO()
    try:
        _Pickler(data, pickle.HIGHEST_PROTOCOL).dump(value)
    except Exception:
        return {"text": text}
    return (
        {"pickle": data.getvalue(), "text": text} if data.tell() < LIMIT_BYTES else {"text": text}
    )


def decode(packed: dict[str, Any]) -> Any:
    """Unpack a value in the notebook.

    Args:
        packed: What ``encode`` made.

    Returns:
        The value, or a RemoteValue when it can't exist here: for example an object whose class
        only the ranks know.
    """
    if "pickle" not in packed:
        return RemoteValue(packed["text"])
    if packed["pickle"] is None:
        return None
    try:
        return pickle.loads(packed["pickle"])
    except Exception:
        return RemoteValue(packed["text"])


class _Pickler(pickle.Pickler):
    """Sends tensors from whatever device they are on, and without the history of gradients."""

    def reducer_override(self, value: Any) -> Any:
        torch = sys.modules.get("torch")
        if torch is None or type(value) is not torch.Tensor:
            return NotImplemented
        if value.requires_grad or value.device.type != "cpu":
            value = value.detach().cpu()
        return value.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
