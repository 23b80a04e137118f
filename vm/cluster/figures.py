"""A node's figures for monitoring: names and meanings, and how each is read from the supervisor's row or from the
daemon's status, which is missing while no daemon answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

Row: TypeAlias = Mapping[str, Any]


class ClusterFigure(NamedTuple):
    """`text`: the meaning. `of`: reads the figure from a row."""

    text: str
    of: Callable[[Row], float]


# Read from the supervisor's row, even while no daemon serves.
OF_A_NODE: Final[Mapping[str, ClusterFigure]] = {
    "tensord_up": ClusterFigure("1 while the node's daemon serves", lambda row: float(row["up"])),
    "tensord_incarnation": ClusterFigure("Starts of the node's daemon", lambda row: row["incarnation"]),
    "tensord_uptime_seconds": ClusterFigure(
        "Seconds since the daemon began to serve", lambda row: row["uptime"] or 0.0
    ),
    "tensord_failures": ClusterFigure("Failed starts in a row", lambda row: row["failures"]),
}
# Read from the daemon's status.
OF_A_DAEMON: Final[Mapping[str, ClusterFigure]] = {
    "tensord_memory_bytes": ClusterFigure("Resident memory of the daemon", lambda row: row["memory"]),
    "tensord_sessions": ClusterFigure("Open sessions", lambda row: row["sessions"]),
    "tensord_tensors": ClusterFigure("Live tensors", lambda row: row["tensors"]),
    "tensord_names": ClusterFigure("Published names", lambda row: row["names"]),
    "tensord_instructions_live": ClusterFigure(
        "Instructions admitted but not finished", lambda row: row["instructions"]["live"]
    ),
    "tensord_instructions_finished": ClusterFigure(
        "Instructions finished so far", lambda row: row["instructions"]["retired"]
    ),
    "tensord_instructions_failed": ClusterFigure(
        "Instructions failed so far", lambda row: row["instructions"]["failed"]
    ),
    "tensord_kernels_hanging": ClusterFigure("Kernels that hang", lambda row: len(row["hung"])),
}
OF_A_DEVICE: Final[Mapping[str, ClusterFigure]] = {
    "tensord_device_used_bytes": ClusterFigure("Memory of tensors on a device", lambda device: device["used"]),
    "tensord_device_limit_bytes": ClusterFigure("Memory that a device has for tensors", lambda device: device["limit"]),
    "tensord_device_evicted_bytes": ClusterFigure(
        "Bytes of tensors evicted from a device so far", lambda device: device["eviction"]["evicted"]["bytes"]
    ),
    "tensord_device_lost": ClusterFigure("1 for a lost device", lambda device: float(bool(device["lost"]))),
}


def figures(row: Row, status: Row | None) -> Iterator[tuple[str, str, float]]:
    """The name of each figure, its device ("" for the whole node) and its value.

    `status`: None if no daemon answers.
    """
    yield from _read(OF_A_NODE, row)
    if status is not None:
        yield from _read(OF_A_DAEMON, status)
        for device, one in status["devices"].items():
            yield from _read(OF_A_DEVICE, one, device)


def _read(table: Mapping[str, ClusterFigure], row: Row, device: str = "") -> Iterator[tuple[str, str, float]]:
    for name, figure in table.items():
        yield name, device, float(figure.of(row))
