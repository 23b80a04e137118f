"""Ops as generated kernels (`block_source`): fusions, which access memory once instead of once for each op, and single
ops that CuPy computes by several launches.

**Until the kernel is compiled**, the steps of a fusion run one after the other, with their own kernels (`unfused`). The
same happens for operands that are not packed, and for numbers that do not fit; and permanently if there are too many
sources, or a source does not compile, which is logged once. Compiling begins when a routine is compiled, on a thread of
its own (`compiling`). The kernel of a single op is compiled by its first call, as CuPy's kernels are.

The results have the same bits as CuPy's calls, made one by one; `block_source` says why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final, TypeAlias

from ...interpreter.programs.facts import metas_of
from ...interpreter.programs.fusion import Fusion, FusionPolicy
from ...interpreter.programs.program import Program, Step
from ...interpreter.schema.opdef import BoundKernel, OpDef, find
from ...interpreter.types.meta import Meta, OperandMeta
from ..device import KernelCall
from .attention_kernels import attention_kernel
from .block import block_of, block_of_call
from .block_kernel import BlockKernel
from .loss_kernels import loss_kernel
from .row_kernels import row_kernel
from .sources import Sources
from .traced import KernelTrace, Untraceable, trace
from .unfused import BindKernel, Unfused

MAX_TRACES: Final = 1 << 14  # traces of calls; beyond this number all are forgotten

Traced: TypeAlias = tuple[str, Any, tuple[Any, ...], Any]


class FusedKernels:
    """The generated kernels of one device. `submit` and `current`: as for `Sources`."""

    def __init__(
        self,
        cupy: Any,
        submit: Callable[[Callable[[], None]], None],
        current: Callable[[], AbstractContextManager[Any]],
    ) -> None:
        self._cupy = cupy
        self._traces: dict[Traced, KernelTrace | None] = {}
        self.sources = Sources(cupy, submit, current)

    def terms(self) -> FusionPolicy:
        """Fuse steps whose kernels are loops of CuPy's, with tensors of any size, since each launch takes time."""
        return FusionPolicy(self.takes, 0)

    def takes(self, program: Program, step: Step) -> bool:
        """Return whether the step may be fused."""
        return self.trace_of(program, step) is not None

    def trace_of(self, program: Program, step: Step) -> KernelTrace | None:
        """The loops of a step; None if it cannot be fused."""
        return self._trace(find(step.op), step.attributes, metas_of(program, step), step.results)

    def kernel_of(self, program: Program, fusion: Fusion, bind: BindKernel) -> BlockKernel | Unfused:
        """A kernel for a fusion, which is compiled soon. `bind`: binds kernels of single calls."""
        unfused = Unfused(program, fusion, bind, self._empty, self._lay_over)
        block = block_of(program, fusion, self.trace_of)
        if block is None:
            return unfused
        return BlockKernel(self.sources, block, unfused, unfused.scratch, soon=True)

    def alone(self, call: KernelCall, kernel: BoundKernel) -> BoundKernel | None:
        """A kernel for a call of one op that replaces CuPy's; None if there is none."""
        found = self._trace(call.op, tuple(call.attributes.items()), call.metas, call.outputs)
        block = None if found is None else block_of_call(call, found)
        if block is not None:
            return BlockKernel(self.sources, block, kernel)
        own = row_kernel(self.sources, call, kernel) or loss_kernel(self.sources, call, kernel, self._empty)
        return own or attention_kernel(self.sources, self._cupy, call)

    def _trace(
        self, op: OpDef, attributes: Any, metas: tuple[OperandMeta | None, ...], results: tuple[Meta | None, ...]
    ) -> KernelTrace | None:
        """The loops of a call; None if they are not known, or there is nothing to compute."""
        result, known = results[0], tuple([meta for meta in metas if meta is not None])
        if len(results) > 1 or result is None or not result.size or len(known) < len(metas) or not op.pointwise:
            return None
        key = (op.name, attributes, tuple(map(dtype_of, known)), result.dtype.name)
        if key not in self._traces:
            if len(self._traces) >= MAX_TRACES:
                self._traces.clear()
            self._traces[key] = self._new_trace(op, dict(attributes), known, result)
        return self._traces[key]

    def _new_trace(
        self, op: OpDef, attributes: Mapping[str, Any], metas: tuple[OperandMeta, ...], result: Meta
    ) -> KernelTrace | None:
        try:
            return trace(self._cupy, op, attributes, metas, result)
        except Untraceable:
            return None

    def _empty(self, nbytes: int) -> Any:
        return self._cupy.empty(nbytes, "uint8")

    def _lay_over(self, memory: Any, meta: Meta, offset: int) -> Any:
        return self._cupy.ndarray(meta.shape, meta.dtype, memptr=memory.data + offset)


def dtype_of(meta: OperandMeta) -> Any:
    """The dtype's name; the type of a number."""
    return meta.dtype.name if isinstance(meta, Meta) else meta
