"""Rates of transfers between devices, by which routes are chosen. They are constants, so each run chooses the same
route.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ....interpreter.layouts.placement import kind_of
from ....interpreter.types.device_names import node_of

# Bytes per second between devices of a kind. Their order matters more than the figures.
BANDWIDTHS: Final = {"cpu": 10e9, "cuda": 25e9, "sim": 0.5e9}
UNKNOWN: Final = 1e9
NETWORK: Final = 1e9  # between nodes


def bandwidth(names: Iterable[str]) -> float:
    """Bytes per second to or from the slowest of these devices."""
    names = list(names)
    if len({node_of(name) for name in names}) > 1:
        return min(NETWORK, bandwidth(names[:1]))
    return min(BANDWIDTHS.get(kind_of(name), UNKNOWN) for name in names)
