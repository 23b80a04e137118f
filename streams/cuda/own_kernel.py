"""Generated kernels, as calls of the driver: the function, its grid, and its arguments.

A library decides at each call what to launch. The launch of a generated kernel is known beforehand, so a graph of
launches can replace the arguments of its node (`graphs`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

from ...interpreter.schema.opdef import BoundKernel


class KernelLaunch(NamedTuple):
    """One launch: CuPy's function, and its arguments. An argument is an array, or a NumPy number."""

    function: Any
    grid: tuple[int, ...]
    block: tuple[int, ...]
    arguments: Sequence[Any]


class OwnKernel(ABC):
    """A generated kernel, bound to a plan; calling it launches. `instead`: called with operands that it does not
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
    def launch_of(self, arrays: Sequence[Any]) -> KernelLaunch | None:
        """The launch that a call with these operands would make; None if a library is called instead."""
