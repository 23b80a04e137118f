"""The slots of a program: which device, chain or function of the process each of its small numbers stands for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...interpreter.errors import CaptureError
from ...interpreter.programs.builder import SLOTS


class Slots:
    """The slots of one capture, which its blocks share. Each method gives the slot of something, perhaps a new one."""

    def __init__(self) -> None:
        self._devices: dict[str, int] = {}
        self._chains: dict[int, int] = {}
        self._callbacks: dict[Identity, int] = {}

    def device(self, name: str) -> int:
        return self._devices.setdefault(name, len(self._devices))

    def chain(self, chain: int) -> int:
        return limited(self._chains, chain, "chains")

    def callback(self, function: Callable[..., None]) -> int:
        """The slot of a function that a side effect calls."""
        return limited(self._callbacks, Identity(function), "functions of side effects")

    @property
    def devices(self) -> list[str]:
        return list(self._devices)

    @property
    def chains(self) -> list[int]:
        return list(self._chains)

    @property
    def callbacks(self) -> list[Callable[..., None]]:
        return [each.value for each in self._callbacks]


class Identity:
    """An object as the key of a dictionary: by identity."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


def limited(table: dict[Any, int], key: Any, what: str) -> int:
    """The number of a key, the next one for a new key; CaptureError for more than a program has slots of."""
    if key not in table and len(table) >= SLOTS:
        raise CaptureError(f"a routine has at most {SLOTS} {what}; make several routines of it")
    return table.setdefault(key, len(table))
