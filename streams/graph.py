"""Graphs of launches: calls of kernels that a device makes again and again, by one call each time.

A list of launches costs a call of each kernel. Where the device can keep the launches themselves (CUDA graphs), it
makes a `LaunchGraph` of the list once, and a run puts in what has changed and launches. What cannot be kept is refused
with the reason, and the list goes on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from ..interpreter.compilation import mypyc_attr
from ..interpreter.ops.positions import Check
from ..interpreter.schema.opdef import BoundKernel

NODE: Final = 1 << 12  # bytes that a driver keeps for a node, an estimate

Call: TypeAlias = tuple[BoundKernel, Sequence[Any]]  # a kernel, and its operands, results and numbers


class Moving(NamedTuple):
    """An argument that may lie elsewhere at another launch: the call, and the argument's place there.

    The kernels of a library are given a place in the graph's own memory for it. The argument is copied there in front
    of the call if the call may `read` it, and from there behind the call if the call has `written` to it.
    """

    call: int
    place: int
    read: bool = True
    written: bool = False


class GraphRefusal(NamedTuple):
    """Why there is no graph of some calls; `call`: the one that is in the way, if it is one; `short`: memory was, so
    another attempt may succeed."""

    reason: str
    call: int | None = None
    short: bool = False


@mypyc_attr(allow_interpreted_subclasses=True)
class LaunchGraph(ABC):
    """The launches of a list of calls. One thread at a time uses it."""

    def __init__(self, nodes: int, copies: int, nbytes: int, checks: Sequence[tuple[int, Check]]) -> None:
        self.nodes = nodes  # kernels, copies, fills
        self.copies = copies  # those of arguments that move
        self.nbytes = nbytes  # of device memory that is the graph's own
        # What calls find out about their data (`ops.positions`): to be judged after each launch, by the call.
        self.checks = tuple(checks)

    @property
    def footprint(self) -> int:
        """The bytes that it takes of the device, those of the driver among them."""
        return self.nbytes + NODE * self.nodes

    @abstractmethod
    def patch(self, index: int, arguments: Sequence[Any]) -> bool:
        """Have a call use these arguments at the launches to come. False if it cannot, and nothing is changed; so for
        None, an operand that is poisoned."""

    @abstractmethod
    def launch(self) -> None:
        """Launch on the current stream of this thread. All graphs of a device are launched on one stream."""

    @property
    @abstractmethod
    def dropped(self) -> bool:
        """Was it given up, perhaps by the device, which needed the memory?"""

    @abstractmethod
    def drop(self) -> None:
        """Give up the graph. Its memory is free when its last launch is complete."""
