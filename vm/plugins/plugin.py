"""The description of a loaded plugin."""

from __future__ import annotations

from typing import Any, NamedTuple


class Plugin(NamedTuple):
    """A package that defines ops, kinds of devices, or both. `location`: the directory or file of its code."""

    name: str
    version: str
    location: str
    ops: tuple[str, ...]
    devices: tuple[str, ...]

    @property
    def row(self) -> dict[str, Any]:
        """The plugin as a row in answers."""
        return {**self._asdict(), "ops": list(self.ops), "devices": list(self.devices)}

    def __str__(self) -> str:
        defined = [f"device {name}" for name in self.devices] + [f"op {name}" for name in self.ops]
        return f"{self.name} {self.version} from {self.location}: {', '.join(defined) or 'defines nothing'}"
