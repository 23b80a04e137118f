"""Runs the steps of a fusion one after the other, with their own kernels, until the kernel of the fusion is compiled.

The results have the same bits as those of the fused kernel.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from ...interpreter.programs.facts import metas_of
from ...interpreter.programs.fusion import Fusion
from ...interpreter.programs.program import Program, Step
from ...interpreter.schema.opdef import UNCOUNTED_BYTES, BoundKernel, find
from ...interpreter.types.meta import Meta
from ..device import KernelCall
from ..host.fused_layout import FusedLayout

BindKernel: TypeAlias = Callable[[KernelCall], tuple[BoundKernel, int]]
ALIGNMENT: Final = 512  # bytes, as CuPy's blocks are


class Unfused:
    """A fusion, called as `kernel(*inputs, *outputs)`. `bind`: binds kernels of single calls; `empty` makes an array of
    bytes, `lay_over` an array in its memory, at an offset."""

    def __init__(
        self,
        program: Program,
        fusion: Fusion,
        bind: BindKernel,
        empty: Callable[[int], Any],
        lay_over: Callable[[Any, Meta, int], Any],
    ) -> None:
        self._bind, self._most = bind, 0
        layout = FusedLayout(program, fusion, lend=True, bind=self._kernel_of)
        count = math.prod(fusion.shape)
        sizes = (-(-part.width * count // ALIGNMENT) * ALIGNMENT for part in layout.parts)
        self._offsets = list(itertools.accumulate(sizes, initial=0))
        self._calls, self._lent = layout.calls, layout.lent
        self._apart = [(position, part, Meta.of(fusion.shape, dtype)) for position, part, dtype in layout.apart]
        self._empty, self._lay_over = empty, lay_over

    @property
    def scratch(self) -> int:
        """The bytes that a call needs besides its arguments."""
        between = self._offsets[-1] if self._offsets[-1] > UNCOUNTED_BYTES else 0
        return between + self._most

    def _kernel_of(self, program: Program, step: Step) -> BoundKernel:
        """The kernel of a step; notes the bytes of its temporaries."""
        metas, attributes = metas_of(program, step), dict(step.attributes)
        kernel, scratch = self._bind(KernelCall(find(step.op), attributes, metas, step.results, False, 0))
        self._most = max(self._most, scratch)
        return kernel

    def __call__(self, *given: Any) -> None:
        operands = [*given, *[None] * (len(self._lent) + len(self._apart))]
        memory = self._empty(self._offsets[-1]) if self._apart else None
        for position, part, meta in self._apart:
            operands[position] = self._lay_over(memory, meta, self._offsets[part])
        for position, output, dtype in self._lent:
            operands[position] = operands[output].view(dtype)
        for kernel, _, _, arrays in self._calls:
            kernel(*arrays(operands))
