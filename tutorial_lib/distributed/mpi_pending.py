"""What a rank is waiting for, told to whoever asks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Pending:
    """An operation that has started and not ended, as another thread sees it.

    Attributes:
        group: Name of the process group; "0" is torch's default group.
        ranks: The group's members, as global ranks.
        operation: torch's name for it, like "all_reduce".
        sequence: How many collectives this group had begun before; equal on all its ranks when
            they are in step. None for send and recv.
        peer: Global rank of the root, sender or receiver, where there is one.
        dtype: Of the tensors.
        shape: Of the first tensor.
        nbytes: Of all tensors, in bytes.
        age_s: Seconds since it started.
        timeout_s: How long it may wait, in seconds.
        is_waited_for: Whether a thread waits for it now, rather than computing meanwhile.
        site: The reader's line that began it, where the ranks compare their collectives; else "".
    """

    group: str
    ranks: tuple[int, ...]
    operation: str
    sequence: int | None
    peer: int | None
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    age_s: float
    timeout_s: float
    is_waited_for: bool
    site: str = ""

    @property
    def name(self) -> str:
        """Operation, number and peer: "all_reduce #57", "recv with rank 1"."""
        number = "" if self.sequence is None else f" #{self.sequence}"
        peer = "" if self.peer is None else f" with rank {self.peer}"
        return f"{self.operation}{number}{peer}"

    def __str__(self) -> str:
        tensor = (
            f"{self.dtype} {list(self.shape)}, {self.nbytes:,} bytes" if self.dtype else "no tensor"
        )
        ranks = ", ".join(map(str, self.ranks))
        return f"{self.name} ({tensor}) of group {self.group!r}, ranks {ranks}"
