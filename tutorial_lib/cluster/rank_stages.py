"""How far a rank has come while it starts, in words for a reader."""

from __future__ import annotations

IMPORTING, STARTING_MPI = "importing", "starting MPI"
# What it waits for then: the controller's connection file, its hub's answer, its heartbeats.
FILE, HUB = "waiting for the controller", "registering"
HEARTBEAT = "waiting for the controller's heart monitor"

WAITS_FOR_CONTROLLER = frozenset({FILE, HUB, HEARTBEAT})
