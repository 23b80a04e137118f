"""The interface of a library that carries out collectives between the devices of this process, and others: NCCL.

A *launch* is what the ranks of this process do of one collective. The library begins launches in the order in which it
gets them, each on all of its devices or on none, so that devices never wait for each other in a circle.

Source: Ray's `Communicator` (`python/ray/experimental/channel/communicator.py`) for the narrow interface.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

from ..interpreter.collectives.library import Calls, Element
from ..interpreter.errors import TensordError

Operand: TypeAlias = tuple[Any, int, int]  # a packed array of a device; the first element that counts, how many do
Operands: TypeAlias = Sequence[tuple[Operand | None, Operand | None]]
Ended: TypeAlias = Callable[[TensordError | None], None]


class Launch:
    """One collective. `devices`: those of all ranks, by name; `calls`: those of the ranks that are here, in order."""

    __slots__ = ("calls", "devices", "element", "label", "reduction")

    def __init__(self, label: str, devices: Sequence[str], calls: Calls, element: Element, reduction: str) -> None:
        self.label = label
        self.devices = tuple(devices)
        self.calls = calls
        self.element = element
        self.reduction = reduction


class CollectiveLibrary(Protocol):
    """Carries out launches. Any thread may call. `name`: as traces show it."""

    name: str

    def begin(self, launch: Launch, operands: Operands, ended: Ended) -> None:
        """Carry a launch out, on what each call reads and writes; nobody else writes there meanwhile. `ended` is called
        once, on any thread: then no device touches the arrays any more."""

    def withdraw(self, launch: Launch, error: TensordError) -> None:
        """Nothing needs to come of a launch, begun or not: `ended` gets the error. One that devices have begun goes to
        its end, unless it may wait for ever: with another error than a CancelledError it is aborted."""

    def close(self, timeout: float) -> bool:
        """Abort what has not ended, and end the threads; False if they did not end within so many seconds."""
