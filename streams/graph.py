"""Graphs of launches: a list of kernel calls that a device repeats with one call each time.

Without a graph, each kernel of the list is launched by a call of its own. A device that can store launches (CUDA
graphs) makes a `LaunchGraph` of the list once. A run patches the arguments that have changed, and launches the graph.
If a list cannot become a graph, the refusal says why, and the kernels are launched one by one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from ..interpreter.compilation import mypyc_attr
from ..interpreter.ops.positions import Check
from ..interpreter.schema.opdef import BoundKernel

NODE_BYTES: Final = 1 << 12  # estimated bytes that a driver keeps for a node

Call: TypeAlias = tuple[BoundKernel, Sequence[Any]]  # a kernel, and its operands, results and numbers


class Moving(NamedTuple):
    """An argument whose address may differ between launches: the call, and the argument's position in it.

    For library kernels, the graph's own memory stands in for the argument: it is copied in before the call if the call
    may `read` it, and copied out after the call if the call has `written` it.
    """

    call: int
    position: int
    read: bool = True
    written: bool = False


class GraphRefusal(NamedTuple):
    """The reason why some calls have no graph. `call`: the call that prevents it, if it is a single one; `short`:
    memory was short, so a later attempt may succeed."""

    reason: str
    call: int | None = None
    short: bool = False


@mypyc_attr(allow_interpreted_subclasses=True)
class LaunchGraph(ABC):
    """The launches of a list of calls. One thread at a time uses it."""

    def __init__(self, nodes: int, copies: int, nbytes: int, checks: Sequence[tuple[int, Check]]) -> None:
        self.nodes = nodes  # kernels, copies, fills
        self.copies = copies  # of arguments that move
        self.nbytes = nbytes  # of device memory that belongs to the graph
        # Findings of calls about their data (`ops.positions`), to be judged after each launch, by call.
        self.checks = tuple(checks)

    @property
    def footprint(self) -> int:
        """The bytes that the graph takes on the device, including the driver's."""
        return self.nbytes + NODE_BYTES * self.nodes

    @abstractmethod
    def patch(self, index: int, arguments: Sequence[Any]) -> bool:
        """Give a call these arguments for later launches. Returns False and changes nothing if the call cannot take
        them; None stands for a poisoned operand, which no call takes."""

    @abstractmethod
    def launch(self) -> None:
        """Launch on the current stream of this thread. All graphs of a device are launched on one stream."""

    @property
    @abstractmethod
    def dropped(self) -> bool:
        """Return whether the graph was given up, perhaps by the device to free memory."""

    @abstractmethod
    def drop(self) -> None:
        """Give up the graph. Its memory is free once its last launch is complete."""
