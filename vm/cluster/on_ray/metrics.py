"""Publishes a node's figures as gauges of Ray, so that the dashboard and Prometheus show them beside Ray's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray.util.metrics import Gauge

from ..figures import OF_A_DAEMON, OF_A_DEVICE, OF_A_NODE, figures


class Gauges:
    """The gauges of one node. Their tags are the node and, for figures of devices, the device."""

    def __init__(self, node: str) -> None:
        self._tags = {"node": node}
        of_all = {**OF_A_NODE, **OF_A_DAEMON}
        self._gauges = {name: Gauge(name, one.text, tag_keys=("node",)) for name, one in of_all.items()}
        for name, one in OF_A_DEVICE.items():
            self._gauges[name] = Gauge(name, one.text, tag_keys=("node", "device"))

    def observe(self, row: Mapping[str, Any], status: Mapping[str, Any] | None) -> None:
        """Set all gauges from a supervisor's row and, if the daemon answers, the daemon's status."""
        for name, device, value in figures(row, status):
            self._gauges[name].set(value, tags={**self._tags, **({"device": device} if device else {})})
