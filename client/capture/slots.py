"""The slots of a program: the device, chain or function of the process to which each of its small numbers refers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...interpreter.errors import CaptureError
from ...interpreter.programs.builder import MAX_SLOTS


class CaptureSlots:
    """The slots of one capture, shared with its blocks. Each method returns the slot of an object, perhaps a new
    one."""

    def __init__(self) -> None:
        self._devices: dict[str, int] = {}
        self._chains: dict[int, int] = {}
        self.callbacks: list[Callable[..., Any]] = []

    def device(self, name: str) -> int:
        return self._devices.setdefault(name, len(self._devices))

    def chain(self, chain: int) -> int:
        if chain not in self._chains:
            check_room(len(self._chains), "chains")
        return self._chains.setdefault(chain, len(self._chains))

    def callback(self, function: Callable[..., Any]) -> int:
        """The slot of a function that a side effect calls."""
        slot = next((n for n, each in enumerate(self.callbacks) if each is function), len(self.callbacks))
        if slot == len(self.callbacks):
            check_room(slot, "functions of side effects")
            self.callbacks.append(function)
        return slot

    @property
    def devices(self) -> list[str]:
        return list(self._devices)

    @property
    def chains(self) -> list[int]:
        return list(self._chains)


def check_room(taken: int, what: str) -> None:
    """CaptureError if a program would have too many slots."""
    if taken >= MAX_SLOTS:
        raise CaptureError(f"a routine has at most {MAX_SLOTS} {what}; split it into several routines")
