"""A daemon's figures as gauges of Ray, so that the dashboard and Prometheus have them beside Ray's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ray.util.metrics import Gauge

OF_A_NODE: Final[dict[str, tuple[str, Callable[[Mapping[str, Any]], float]]]] = {
    "tensord_incarnation": ("Starts of the node's daemon", lambda row: row["incarnation"]),
    "tensord_uptime_seconds": ("Seconds since the daemon began to serve", lambda row: row["uptime"] or 0.0),
    "tensord_failures": ("Starts in a row that have failed", lambda row: row["failures"]),
    "tensord_memory_bytes": ("Resident memory of the daemon", lambda row: row["memory"]),
    "tensord_sessions": ("Open sessions", lambda row: row["sessions"]),
    "tensord_tensors": ("Live tensors", lambda row: row["tensors"]),
    "tensord_names": ("Published names", lambda row: row["names"]),
    "tensord_instructions_live": ("Instructions admitted and not finished", lambda row: row["instructions"]["live"]),
    "tensord_instructions_finished": ("Instructions finished so far", lambda row: row["instructions"]["retired"]),
    "tensord_instructions_failed": ("Instructions failed so far", lambda row: row["instructions"]["failed"]),
    "tensord_kernels_hanging": ("Kernels that hang", lambda row: len(row["hung"])),
}
OF_A_DEVICE: Final[dict[str, tuple[str, Callable[[Mapping[str, Any]], float]]]] = {
    "tensord_device_used_bytes": ("Memory of tensors on a device", lambda device: device["used"]),
    "tensord_device_limit_bytes": ("Memory that a device has for tensors", lambda device: device["limit"]),
    "tensord_device_lost": ("1 for a lost device", lambda device: float(bool(device["lost"]))),
}


class Gauges:
    """The gauges of one node."""

    def __init__(self, node: str) -> None:
        self._tags = {"node": node}
        self._node = {name: Gauge(name, text, tag_keys=("node",)) for name, (text, _) in OF_A_NODE.items()}
        keys = ("node", "device")
        self._device = {name: Gauge(name, text, tag_keys=keys) for name, (text, _) in OF_A_DEVICE.items()}

    def observe(self, status: Mapping[str, Any], row: Mapping[str, Any]) -> None:
        """Set all gauges from a daemon's status and its supervisor's row."""
        found = {**status, **row}
        for name, (_, figure) in OF_A_NODE.items():
            self._node[name].set(figure(found), tags=self._tags)
        for device, one in status["devices"].items():
            for name, (_, figure) in OF_A_DEVICE.items():
                self._device[name].set(figure(one), tags={**self._tags, "device": device})
