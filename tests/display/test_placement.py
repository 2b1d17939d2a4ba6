"""Hosts, slots and ranks: drawn, and told."""

from __future__ import annotations

import pytest

from tutorial_lib.display.placement import placement_picture


def test_every_rank_is_in_its_host() -> None:
    picture = placement_picture({"node1": 2, "node2": 3}, ["node1", "node2", "node1"])
    assert picture.alt == ("Host node1 with 2 slots: ranks 0, 2. Host node2 with 3 slots: rank 1.")
    texts = [text.get_text() for text in picture.figure.axes[0].texts]
    assert texts == ["node1\n2 slots", "0", "2", "node2\n3 slots", "1"]
    slots = picture.figure.axes[0].patches[1:3] + picture.figure.axes[0].patches[4:]
    assert [slot.get_linestyle() for slot in slots] == ["-", "-", "-", ":", ":"]


def test_ranks_beyond_the_slots_are_told() -> None:
    picture = placement_picture({"node1": 1}, ["node1", "node1"])
    assert picture.alt == "Host node1 with 1 slot: ranks 0, 1, 1 more than it has slots."
    assert placement_picture({"node1": 1, "node2": 4}, ["node1"]).alt.endswith("4 slots: no rank.")


def test_a_host_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="ranks live on node3, but there are node1"):
        placement_picture({"node1": 1}, ["node3"])
