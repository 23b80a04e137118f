"""The interface of a library that carries out collectives between devices of this process and of others: NCCL.

A *launch* is this process's part of one collective. The library begins launches in the order in which it receives them,
each on all of its devices or on none, so that devices never wait for each other in a circle. A launch with ranks in
other processes is *shared*: `gangs` ensures that all processes begin it, and in one order.

Source: Ray's `Communicator` (`python/ray/experimental/channel/communicator.py`) for the narrow interface.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from ..interpreter.collectives.library import Calls, Element
from ..interpreter.errors import TensordError

Operand: TypeAlias = tuple[Any, int, int]  # a packed array of a device; index of the first element; number of elements
Operands: TypeAlias = Sequence[tuple[Operand | None, Operand | None]]
Ended: TypeAlias = Callable[[TensordError | None], None]

ID_BYTES: Final = 128  # bytes of a communicator's id


def tell_nobody(*_what: object) -> None:
    """The callback for events that need no report."""


class SharedCommunicator(NamedTuple):
    """The agreement of the ranks of a launch in several processes on one communicator: the one with the id `existing`,
    a new one with the id `made_with`, or a new one with a new id if both are empty. `announce` gets the id before
    anything waits for other processes. `placed` is called once the communicator exists and the launch has its position
    in the order of this process."""

    existing: bytes = b""
    made_with: bytes = b""
    announce: Callable[[bytes], None] = tell_nobody
    placed: Callable[[], None] = tell_nobody


class CollectiveLaunch:
    """One collective. `devices`: the devices of all ranks, by name; `here`: the ranks and devices of this process;
    `calls`: the calls of these ranks, in order. `shared`: None if all ranks are in this process."""

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
        self.shared: SharedCommunicator | None = None


class CollectiveLibrary(Protocol):
    """Carries out launches. Any thread may call; no call waits. `name`: as traces show it; `version`: libraries of two
    processes work together only if their versions are equal."""

    name: str
    version: str

    def begin(self, launch: CollectiveLaunch, operands: Operands, ended: Ended) -> None:
        """Carry out a launch on the operands of each call; no other code writes to them meanwhile. `ended` is called
        once, on any thread, when no device uses the arrays any more."""

    def working_id(self, devices: Sequence[str]) -> bytes:
        """The id of the working communicator of these devices, in this order and including other processes; empty if
        there is none."""

    def withdraw(self, launch: CollectiveLaunch, error: TensordError, *, missing: bool = False) -> None:
        """Withdraw a launch, begun or not: `ended` gets the error. Devices finish a launch that they have begun, unless
        it may wait for ever: it is aborted if the error is no CancelledError, or if ranks of other processes are
        `missing`."""

    def close(self, timeout: float) -> bool:
        """Abort all unfinished launches, and end the threads; False if they did not end within `timeout` seconds."""
