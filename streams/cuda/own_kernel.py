"""Kernels that we generate, as calls of the driver: the function, its grid, and its arguments.

A call of a library decides by itself what it launches. Of a kernel of our own that is known beforehand, so a graph of
launches can have other arguments put into its node (`graphs`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

from ...interpreter.schema.opdef import BoundKernel


class Launch(NamedTuple):
    """One launch: CuPy's function, and what it is called with. An argument is an array, or a number of NumPy's."""

    function: Any
    grid: tuple[int, ...]
    block: tuple[int, ...]
    arguments: Sequence[Any]


class OwnKernel(ABC):
    """A kernel of our own, bound to a plan; calling it launches. `instead`: called with operands that it does not
    take."""

    __slots__ = ("instead",)

    def __init__(self, instead: BoundKernel) -> None:
        self.instead = instead

    def __call__(self, *arrays: Any) -> Any:
        """Launch on the current stream."""
        launch = self.launch_of(arrays)
        if launch is None:
            return self.instead(*arrays)
        return launch.function(launch.grid, launch.block, launch.arguments)

    @abstractmethod
    def launch_of(self, arrays: Sequence[Any]) -> Launch | None:
        """The launch that a call with these operands is; None if the call is left to a library."""
