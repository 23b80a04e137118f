"""Placements: the devices on which a global tensor lies, in a grid of one or two dimensions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ..errors import MetadataError, MetadataTypeError
from ..types.device_names import node_of

# A node's name may come first: "node1/sim:0". Whether the device exists is checked where the placement is used.
_NAME: Final = re.compile(r"(?:[^\s/:]+/)?([a-z]+):\d+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Placement:
    """Devices of one kind, row by row, and the shape of their grid. `nodes`: their nodes, "" without a node name."""

    names: tuple[str, ...]
    grid: tuple[int, ...]
    _hash: int = field(init=False, repr=False, compare=False)
    nodes: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.names, self.grid)))
        object.__setattr__(self, "nodes", frozenset([node_of(name) for name in self.names]))

    def __hash__(self) -> int:
        return self._hash  # it is in the key of each op on a global tensor

    @property
    def spans(self) -> bool:
        """Return whether its devices are on several nodes."""
        return len(self.nodes) > 1

    @property
    def kind(self) -> str:
        """The kind of all its devices: "sim"."""
        return kind_of(self.names[0])

    @property
    def rows(self) -> tuple[tuple[str, ...], ...]:
        """The names, row by row; one row for a grid of one dimension."""
        width = self.grid[-1]
        return tuple(self.names[start : start + width] for start in range(0, len(self.names), width))

    def __str__(self) -> str:
        shown = list(self.names) if len(self.grid) == 1 else [list(row) for row in self.rows]
        return f"placement({shown})"


def placement(devices: Placement | Sequence[str] | Sequence[Sequence[str]]) -> Placement:
    """Make a placement of devices, in a row or in a grid: ``placement([["sim:0", "sim:1"], ["sim:2", "sim:3"]])``.

    Devices of several kinds are refused: the last bits of their results differ, so copies of a value would diverge.

    :param devices: Names of devices, or rows of names.
    :returns: The placement.
    :raises MetadataError: There is no device, a device twice, devices of several kinds, or rows of different lengths.
    """
    if isinstance(devices, Placement):
        return devices
    rows = [list(_listed(row)) for row in _rows(_listed(devices))]
    names = tuple([name for row in rows for name in row])
    if not names:
        raise MetadataError("a placement needs at least one device")
    if len({len(row) for row in rows}) > 1:
        raise MetadataError(f"the rows of a placement have different lengths: {[len(row) for row in rows]}")
    kinds = list(dict.fromkeys(kind_of(name) for name in names))
    if len(kinds) > 1:
        raise MetadataError(
            f"a placement must have devices of one kind, not {' and '.join(kinds)}: their results differ"
        )
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise MetadataError(f"the placement names {twice!r} twice")
    return Placement(names, (len(rows), len(rows[0])) if _is_nested(devices) else (len(names),))


def kind_of(name: Any) -> str:
    """The kind of a device, from its name; MetadataError for an invalid name."""
    if not isinstance(name, str):
        raise MetadataTypeError(f"a device must be named by a str such as 'sim:0', not {type(name).__name__}")
    found = _NAME.fullmatch(name)
    if found is None:
        raise MetadataError(f"{name[:80]!r} is not a name of a device, such as 'sim:0'")
    return found[1]


def _listed(devices: Any) -> Sequence[Any]:
    if isinstance(devices, str) or not isinstance(devices, Sequence):
        raise MetadataTypeError(
            f"a placement must be a list of devices, or a list of lists of them, not {devices!r:.80}"
        )
    return devices


def _is_nested(devices: Sequence[Any]) -> bool:
    """Return whether there are rows; then all entries must be rows."""
    return any(not isinstance(entry, str) for entry in devices)


def _rows(devices: Sequence[Any]) -> Sequence[Any]:
    return devices if _is_nested(devices) else [devices]
