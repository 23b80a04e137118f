"""The kernel of a block (`block`): chooses between its two compiled functions, and launches with the arguments in
order.

Packs need aligned operands and rows of whole packs; otherwise a thread computes one element. While nothing is compiled,
and for operands or numbers that the kernel cannot take, `instead` is called.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Any, Final, NamedTuple

import numpy as np

from ...interpreter.schema.opdef import BoundKernel
from .block import KernelBlock
from .block_source import source_of
from .own_kernel import KernelLaunch, OwnKernel
from .sources import Sources

THREADS: Final = 256  # of a block of the grid


class Shape(NamedTuple):
    """The launch of a kernel: its grid, and the arguments after its tensors and numbers."""

    grid: tuple[int]
    sizes: tuple[Any, ...]


class BlockKernel(OwnKernel):
    """The kernel of a block, called as `kernel(*inputs, *outputs)`. `instead`: the kernel for operands that are not
    packed, for numbers that do not fit, and while there is no compiled function; `scratch`: the bytes that it needs.

    `soon`: the source is compiled in the background, and `instead` is called until then. Otherwise the first call
    compiles the source.
    """

    def __init__(
        self, sources: Sources, block: KernelBlock, instead: BoundKernel, scratch: int = 0, *, soon: bool = False
    ) -> None:
        super().__init__(instead)
        self.source = source_of(block)
        self.digest = sha256(self.source.encode()).hexdigest()
        self.scratch = scratch
        self._sources, self._soon = sources, soon
        self._tensors = [tensor.position for tensor in block.tensors]
        self._inputs = [tensor.position for tensor in block.inputs]
        self._outputs = [tensor.position for tensor, _ in block.outputs]
        self._numbers = [(number.position, number.dtype.type, number.constant) for number in block.numbers]
        self._single, self._packs = shapes_of(block)
        packed = [tensor for tensor in block.tensors if block.is_packed(tensor)]
        self._alignments = [(tensor.position, block.pack * tensor.meta.dtype.itemsize - 1) for tensor in packed]
        if soon:
            sources.compile_in_background(self.digest, self.source)

    def is_ready(self) -> bool:
        """Return whether the kernel is compiled."""
        return self._sources.compiled.get(self.digest) is not None

    def is_pending(self) -> bool:
        """Return whether the kernel is still to be compiled."""
        return self._sources.is_pending(self.digest)

    def launch_of(self, arrays: Sequence[Any]) -> KernelLaunch | None:
        sources, digest = self._sources, self.digest
        functions = sources.compiled.get(digest) if self._soon else sources.compile_now(digest, self.source)
        arguments = None if functions is None else self._arguments(arrays)
        if functions is None or arguments is None:
            return None
        function, packs = functions
        shape = self._packs
        if shape is None or any(arrays[position].data.ptr & mask for position, mask in self._alignments):
            return KernelLaunch(function, self._single.grid, (THREADS,), (*arguments, *self._single.sizes))
        return KernelLaunch(packs, shape.grid, (THREADS,), (*arguments, *shape.sizes))

    def _arguments(self, given: Sequence[Any]) -> list[Any] | None:
        """The tensors and numbers for the kernel; None if it cannot take them."""
        for position in self._tensors:
            if not given[position]._c_contiguous:  # noqa: SLF001 - `flags` makes an object at each call
                return None
        arguments = [given[position] for position in self._inputs]
        with suppress(OverflowError):  # the dtype cannot hold a number that is compared with its values
            for position, of_dtype, constant in self._numbers:
                arguments.append(constant if position < 0 else of_dtype(given[position]))
            arguments += [given[position] for position in self._outputs]
            return arguments
        return None


def shapes_of(block: KernelBlock) -> tuple[Shape, Shape | None]:
    """The launches of both kernels; None for the kernel of packs if rows are not whole packs."""
    index: Any = np.uint64 if block.wide else np.uint32
    nil, pack = np.uint32(0), block.pack
    count, *sizes = block.sizes()
    single = Shape(grid_of(count), (index(count), *map(index, sizes), nil))
    if not block.divides():
        return single, None
    return single, Shape(grid_of(count // pack + 1), (index(count), *[index(n // pack) for n in sizes], nil))


def grid_of(threads: int) -> tuple[int]:
    """The grid for that many threads."""
    return (-(-threads // THREADS),)
