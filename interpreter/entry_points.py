"""The groups of entry points in which packages declare that they define ops or kinds of devices (docs/plugins.md)."""

from __future__ import annotations

from typing import Final

OPS: Final = "tensord.ops"  # under any name
DEVICES: Final = "tensord.devices"  # each named as the kind that it defines
GROUPS: Final = (OPS, DEVICES)
