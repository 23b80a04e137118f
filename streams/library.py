"""The interface of a library that carries out collectives between the devices of this process, and others: NCCL.

A *launch* is what the ranks of this process do of one collective. The library begins launches in the order in which it
gets them, each on all of its devices or on none, so that devices never wait for each other in a circle. A launch with
ranks in other processes is *shared*: `gangs` sees to it that all of them begin it, in one order.

Source: Ray's `Communicator` (`python/ray/experimental/channel/communicator.py`) for the narrow interface.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from ..interpreter.collectives.library import Calls, Element
from ..interpreter.errors import TensordError

Operand: TypeAlias = tuple[Any, int, int]  # a packed array of a device; the first element that counts, how many do
Operands: TypeAlias = Sequence[tuple[Operand | None, Operand | None]]
Ended: TypeAlias = Callable[[TensordError | None], None]

ID: Final = 128  # bytes of a communicator's id


def tell_nobody(*_what: object) -> None:
    """Nobody is to be told."""


class Shared(NamedTuple):
    """How the ranks of a launch in several processes get one communicator: that of the id `kept`, which all have; or a
    new one with the id `made_with`, or with a new id if both are empty. `announce` is told the id, before anything
    waits for other processes; `placed` is called once the communicator is there, and the launch has its place in the
    order of this process."""

    kept: bytes = b""
    made_with: bytes = b""
    announce: Callable[[bytes], None] = tell_nobody
    placed: Callable[[], None] = tell_nobody


class Launch:
    """One collective. `devices`: those of all ranks, by name; `here`: those of this process, by rank; `calls`: of the
    ranks that are here, in order. `shared`: None if all are here."""

    __slots__ = ("calls", "devices", "element", "here", "label", "reduction", "shared")

    def __init__(
        self,
        label: str,
        devices: Sequence[str],
        here: Mapping[int, str],
        calls: Calls,
        element: Element,
        reduction: str,
    ) -> None:
        self.label = label
        self.devices = tuple(devices)
        self.here = here
        self.calls = calls
        self.element = element
        self.reduction = reduction
        self.shared: Shared | None = None


class CollectiveLibrary(Protocol):
    """Carries out launches. Any thread may call, and waits for nothing. `name`: as traces show it; `version`: the
    libraries of two processes work together if it is the same."""

    name: str
    version: str

    def begin(self, launch: Launch, operands: Operands, ended: Ended) -> None:
        """Carry a launch out, on what each call reads and writes; nobody else writes there meanwhile. `ended` is called
        once, on any thread: then no device touches the arrays any more."""

    def kept(self, devices: Sequence[str]) -> bytes:
        """The id of the communicator that there is for these devices in this order, some of other processes; empty if
        there is none that works."""

    def withdraw(self, launch: Launch, error: TensordError, *, missing: bool = False) -> None:
        """Nothing needs to come of a launch, begun or not: `ended` gets the error. One that devices have begun goes to
        its end, unless it may wait for ever: with another error than a CancelledError, or if ranks of other processes
        are `missing`, it is aborted."""

    def close(self, timeout: float) -> bool:
        """Abort what has not ended, and end the threads; False if they did not end within so many seconds."""
