"""Elementwise calls as generated kernels, each launched by one call of the driver.

At each call a ufunc of CuPy's determines its loop, the axes that can be joined, and the size of the grid, which takes
longer than the launch itself. All of that depends on dtypes and shapes, so a plan can store it. The kernel of a plan is
therefore generated: the device code of CuPy's loop, applied to each element of a packed result.

Bits. The device code and the compiler's flags are CuPy's, and so are the results.

CuPy's ufunc is called for operands that are not packed (views) or broadcast along more than two groups of axes, for
results that must be cast, for complex numbers and float16, and for arrays without elements.

Compiling. The first call of a kernel compiles it, as the first call of a ufunc does: on the launcher's thread
(`vm.model.launches`), with CuPy's cache. A kernel that does not compile is logged once, and CuPy's ufunc replaces it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from ...interpreter.schema.opdef import BoundKernel
from ...interpreter.types.joined_axes import JoinedAxes
from ...interpreter.types.meta import Meta, OperandMeta
from ..device import KernelCall
from ..stream import LOG
from .loops import HEADERS, NAMES, UfuncLoop, loop_of
from .own_kernel import KernelLaunch, OwnKernel

BLOCK: Final = 256  # threads
# The index in an operand that belongs to element `i` of a result with rows of `inner` elements; by whether the operand
# extends along the axis of rows, and along the axis of their elements.
OFFSETS: Final[dict[tuple[bool, ...], str]] = {
    (True, True): "i",
    (False, True): "i % inner",
    (True, False): "i / inner",
    (False, False): "0",
}


class DirectKernels:
    """The generated kernels of one device. `compiled`: CuPy's functions, by source."""

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        self.compiled: dict[str, Any] = {}

    def kernel_of(self, call: KernelCall) -> DirectKernel | None:
        """A kernel for the call; None if CuPy computes it."""
        metas = tuple([meta for meta in call.metas if meta is not None])
        result = call.outputs[0] if len(call.outputs) == 1 else None
        if len(metas) < len(call.metas) or result is None or not call.op.is_ufunc(metas):
            return None
        ufunc: Any = getattr(self._cupy, str(call.op.ufunc))
        loop = loop_of(ufunc, metas, result)
        axes = JoinedAxes.of([meta.shape for meta in (*metas, result) if isinstance(meta, Meta)])
        if loop is None or not result.size or len(axes.lengths) > 2:
            return None
        index: type[np.unsignedinteger[Any]] = np.uint32
        if any(meta.nbytes >> 31 for meta in (*metas, result) if isinstance(meta, Meta)):
            index = np.uint64
        sizes = index(result.size), index(axes.lengths[-1] if axes.lengths else 1)
        source = source_of(loop, metas, axes, np.dtype(index).name)
        return self.launching(source, loop, metas, sizes, ufunc)

    def launching(
        self, source: str, loop: UfuncLoop, metas: Sequence[Any], sizes: tuple[Any, Any], ufunc: BoundKernel
    ) -> DirectKernel:
        """A kernel that launches the generated one for packed operands, and calls the ufunc for others."""
        return DirectKernel(self, source, loop, metas, sizes, ufunc)

    def compile(self, source: str) -> Any:
        """CuPy's function for the current device; None if there is none."""
        try:
            function = self._cupy.RawKernel(source, "direct").kernel
        except Exception:
            LOG.warning("a generated kernel does not compile; CuPy's ufunc takes its place:\n%s", source, exc_info=True)
            function = None
        self.compiled[source] = function
        return function


class DirectKernel(OwnKernel):
    """The generated kernel of one plan. A call makes no `KernelLaunch` object, because most ops take this path."""

    __slots__ = ("_block", "_grid", "_kernels", "_numbers", "_sizes", "_source", "_tensors")

    def __init__(
        self,
        kernels: DirectKernels,
        source: str,
        loop: UfuncLoop,
        metas: Sequence[Any],
        sizes: tuple[Any, Any],
        ufunc: BoundKernel,
    ) -> None:
        super().__init__(ufunc)
        self._kernels, self._source, self._sizes = kernels, source, sizes
        self._grid, self._block = (-(-int(sizes[0]) // BLOCK),), (BLOCK,)
        numbers = [position for position, meta in enumerate(metas) if not isinstance(meta, Meta)]
        self._numbers = [(position, loop.taken[position].type) for position in numbers]
        self._tensors = [position for position in range(len(metas) + 1) if position not in numbers]

    def __call__(self, *arrays: Any) -> Any:
        arguments = self._arguments(arrays)
        function = None if arguments is None else self._function()
        return self.instead(*arrays) if function is None else function(self._grid, self._block, arguments)

    def launch_of(self, arrays: Sequence[Any]) -> KernelLaunch | None:
        arguments = self._arguments(arrays)
        function = None if arguments is None else self._function()
        return (
            None
            if arguments is None or function is None
            else KernelLaunch(function, self._grid, self._block, arguments)
        )

    def _arguments(self, arrays: Sequence[Any]) -> tuple[Any, ...] | None:
        """The arguments of the generated kernel; None if it does not take these operands."""
        for position in self._tensors:
            if not arrays[position]._c_contiguous:  # noqa: SLF001 - `flags` makes an object at each call
                return None
        arguments = [*arrays, *self._sizes]
        for position, of_dtype in self._numbers:
            try:
                arguments[position] = of_dtype(arguments[position])
            except OverflowError:  # the dtype cannot hold a number that is compared with its values
                return None
        return tuple(arguments)

    def _function(self) -> Any:
        compiled = self._kernels.compiled
        return compiled[self._source] if self._source in compiled else self._kernels.compile(self._source)


def source_of(loop: UfuncLoop, metas: Sequence[OperandMeta], axes: JoinedAxes, width: str) -> str:
    """The source of a kernel. `width`: the dtype of an index."""
    index = NAMES[width]
    padding = (True,) * (2 - len(axes.lengths))
    parameters, reads = [], []
    tensor = 0
    for n, (dtype, meta) in enumerate(zip(loop.taken, metas, strict=True)):
        name = NAMES[dtype.name]
        reads.append(f"typedef {name} in{n}_type;")
        if isinstance(meta, Meta):
            parameters.append(f"const {NAMES[meta.dtype.name]}* a{n}")
            reads.append(f"const {name} in{n} = a{n}[{OFFSETS[padding + axes.along(tensor)]}];")
            tensor += 1
        else:
            parameters.append(f"const {name} in{n}")
    given = NAMES[loop.given.name]
    body = "\n        ".join(
        [*reads, f"typedef {given} out0_type;", "out0_type out0;", f"{loop.code};", "r[i] = out0;"]
    )
    return f"""{HEADERS}{loop.preamble}
extern "C" __global__ void direct({", ".join(parameters)}, {given}* r, const {index} n, const {index} inner) {{
    const {index} i = blockIdx.x * ({index})blockDim.x + threadIdx.x;
    if (i < n) {{
        {body}
    }}
}}
"""
