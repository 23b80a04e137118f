"""The state of eviction on a device: its policy, and its counts. `memory.victims` applies the policy."""

from __future__ import annotations

from typing import Any

from ...streams.device import Device


class EvictionState:
    """The eviction state of one device.

    - `policy` chooses the victims (`memory.victims`); `floor` is the memory that each session may keep from others;
    - `rankings` are the known orders of eviction, by the account that needs memory;
    - `evicted`, `dropped` and `returned` are counts of values and their bytes: evicted to a tier below, dropped because
      they were valid elsewhere, and returned after an eviction.
    """

    __slots__ = ("dropped", "evicted", "floor", "policy", "rankings", "returned")

    def __init__(self, backend: Device) -> None:
        self.policy = backend.eviction
        self.floor = backend.floor
        self.rankings: dict[Any, Any] = {}
        self.evicted = [0, 0]
        self.dropped = [0, 0]
        self.returned = [0, 0]
