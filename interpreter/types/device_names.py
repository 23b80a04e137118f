"""Names of devices: "sim:0", and "node1/sim:0" on a machine that is one of several nodes."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

NODE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", re.ASCII)
NODE_FORM: Final = "letters, digits, '.', '_' and '-', 63 at most, a letter or a digit first"


def is_node(name: object) -> bool:
    """Return whether it is the name of a node."""
    return type(name) is str and NODE.fullmatch(name) is not None


def kind_of(device: str) -> str:
    """`sim` of `sim:0`, on any node."""
    return device.rpartition("/")[2].partition(":")[0]


def node_of(device: str) -> str:
    """`node1` of `node1/sim:0`; "" for a device of a machine without a node name."""
    return device.rpartition("/")[0]


def on_node(node: str, device: str) -> str:
    """The full name of a device that its own machine's settings call `sim:0`."""
    return f"{node}/{device}" if node else device


def own_name(device: str, devices: Collection[str]) -> str:
    """The full name of a device of the machine that has `devices`. A name without a node is one of the machine's
    own."""
    if device not in devices and "/" not in device:
        for first in devices:
            return on_node(node_of(first), device)
    return device


def counterpart(device: str, devices: Collection[str]) -> str:
    """The device of that name; else the one of that kind and number among `devices`; else the first of them."""
    for name in (device, own_name(device.rpartition("/")[2], devices)):
        if name in devices:
            return name
    return next(iter(devices))
