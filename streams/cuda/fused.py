"""Fusions as one generated kernel each (`block_source`), which reads and writes memory once where the ops' own kernels
would for each op.

**Until it is compiled** the steps run one after the other, with the kernels that they have alone (`unfused`). They do
so, too, for operands that are not packed, and for numbers that do not fit, as they would op by op; and for good, where
there are more sources than are kept (`MOST`), or one does not compile, which is logged once. Compiling begins when a
routine is compiled, on a thread of its own (`compiling`). CuPy keeps the machine code on disk; here functions are found
by the digest of their source.

Bits are those of the steps one by one; `block_source` says why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from ...interpreter.programs.fusion import Fusion, Terms
from ...interpreter.programs.passes.facts import metas_of
from ...interpreter.programs.program import Program, Step
from ...interpreter.schema.opdef import OpDef, find
from ...interpreter.types.meta import Meta, OperandMeta
from ..stream import LOG
from .block import Block, block_of
from .block_source import source_of
from .own_kernel import Launch, OwnKernel
from .traced import Trace, Untraceable, trace
from .unfused import BindKernel, Unfused

THREADS: Final = 256  # of a block of the grid
MOST: Final = 4096  # sources on one device: CuPy keeps what is compiled, and clients may send any number of programs
REMEMBERED: Final = 1 << 14  # traces of calls, all of which are forgotten when there are more
OPTIONS: Final = ("--fmad=false",)

Traced: TypeAlias = tuple[str, Any, tuple[Any, ...], Any]


class Compiled(NamedTuple):
    """CuPy's functions of a source: element by element, and by packs. None if it does not compile."""

    single: Any
    packs: Any


class FusedKernels:
    """The generated kernels of one device.

    `submit` has something done where nobody waits; `current` makes the device current on a thread. `blocking`: does
    each launch wait for the device? `compiled`: by the digests of sources, None for one that does not compile.
    """

    def __init__(
        self,
        cupy: Any,
        submit: Callable[[Callable[[], None]], None],
        current: Callable[[], Any],
        *,
        blocking: bool = False,
    ) -> None:
        self._cupy = cupy
        self.blocking = blocking
        self._submit, self._current = submit, current
        self._asked: set[str] = set()
        self._traces: dict[Traced, Trace | None] = {}
        self.compiled: dict[str, Compiled | None] = {}

    def terms(self) -> Terms:
        """What is fused: steps whose kernels are loops of CuPy's. Tensors of any size, since each launch takes time."""
        return Terms(self.takes, 0)

    def takes(self, program: Program, step: Step) -> bool:
        """May the step be fused?"""
        result = step.results[0]
        return result is not None and result.size > 0 and self.trace_of(program, step) is not None

    def trace_of(self, program: Program, step: Step) -> Trace | None:
        """The loops that a step consists of; None if it cannot be said."""
        op, metas, (result, *others) = find(step.op), metas_of(program, step), step.results
        known = tuple([meta for meta in metas if meta is not None])
        if others or result is None or len(known) < len(metas) or not op.elementwise:
            return None
        dtypes = tuple([meta.dtype.name if isinstance(meta, Meta) else meta for meta in known])
        key = (op.name, step.attributes, dtypes, result.dtype.name)
        if key not in self._traces:
            if len(self._traces) >= REMEMBERED:
                self._traces.clear()
            self._traces[key] = self._trace(op, dict(step.attributes), known, result)
        return self._traces[key]

    def _trace(self, op: OpDef, attributes: dict[str, Any], metas: Sequence[OperandMeta], result: Meta) -> Trace | None:
        try:
            return trace(self._cupy, op, attributes, metas, result)
        except Untraceable:
            return None

    def kernel_of(self, program: Program, fusion: Fusion, bind: BindKernel) -> FusedCall | Unfused:
        """A kernel for a fusion, which is compiled soon. `bind`: what binds kernels of single calls."""
        unfused = Unfused(program, fusion, bind, self._empty, self._lay_over)
        block = block_of(program, fusion, self.trace_of)
        return unfused if block is None else FusedCall(self, block, unfused)

    def wait(self) -> None:
        """Wait for the stream that is current."""
        self._cupy.cuda.get_current_stream().synchronize()

    def _empty(self, nbytes: int) -> Any:
        return self._cupy.empty(nbytes, "uint8")

    def _lay_over(self, memory: Any, meta: Meta, offset: int) -> Any:
        return self._cupy.ndarray(meta.shape, meta.dtype, memptr=memory.data + offset)

    def ask(self, digest: str, source: str) -> None:
        """Have a source compiled where nobody waits, unless there are too many."""
        if digest not in self._asked and len(self._asked) < MOST:
            self._asked.add(digest)
            self._submit(partial(self.compile, digest, source))

    def compile(self, digest: str, source: str) -> None:
        """Compile a source now."""
        try:
            with self._current():
                names = ("fused", "fused_packs")
                found = Compiled(*[self._cupy.RawKernel(source, name, OPTIONS).kernel for name in names])
        except Exception:
            LOG.warning("a generated kernel does not compile; its ops run one by one:\n%s", source, exc_info=True)
            self.compiled[digest] = None
        else:
            self.compiled[digest] = found


class FusedCall(OwnKernel):
    """A fusion, called as `kernel(*inputs, *outputs)`. `source`: that of its kernel; `scratch`: bytes that the steps
    take where they run one by one."""

    def __init__(self, kernels: FusedKernels, block: Block, unfused: Unfused) -> None:
        self.source = source_of(block)
        self.digest = sha256(self.source.encode()).hexdigest()
        self._compiled, self._unfused = kernels.compiled, unfused
        self._wait = kernels.wait if kernels.blocking else None
        self._tensors = [tensor.place for tensor in block.tensors]
        self._inputs = [tensor.place for tensor in block.inputs]
        self._outputs = [tensor.place for tensor, _ in block.outputs]
        self._numbers = [(number.place, number.dtype.type, number.constant) for number in block.numbers]
        index: Any = np.uint64 if block.wide else np.uint32
        count, *sizes = block.sizes()
        pack = block.pack
        self._single = Shape(grid_of(count), (index(count), *map(index, sizes), np.uint32(0)))
        self._packs: Shape | None = None
        if block.divides():
            counts = index(count), *[index(n // pack) for n in sizes]
            self._packs = Shape(grid_of(count // pack + 1), (*counts, np.uint32(0)))
        self._alignments = [
            (tensor.place, pack * tensor.meta.dtype.itemsize - 1) for tensor in block.tensors if block.is_packed(tensor)
        ]
        kernels.ask(self.digest, self.source)

    @property
    def scratch(self) -> int:
        """The bytes that a call takes besides its arguments."""
        return self._unfused.scratch

    def is_ready(self) -> bool:
        """Is its kernel compiled?"""
        return self._compiled.get(self.digest) is not None

    def __call__(self, *given: Any) -> None:
        launch = self.launch_of(given)
        if launch is None:
            self._unfused(*given)
            return
        launch.function(launch.grid, launch.block, launch.arguments)
        if self._wait is not None:
            self._wait()

    def launch_of(self, arrays: Sequence[Any]) -> Launch | None:
        functions = self._compiled.get(self.digest)
        arguments = None if functions is None else self._arguments(arrays)
        if functions is None or arguments is None:
            return None
        shape, function = self._packs, functions.packs
        if shape is None or any(arrays[place].data.ptr & mask for place, mask in self._alignments):
            shape, function = self._single, functions.single
        return Launch(function, shape.grid, (THREADS,), (*arguments, *shape.sizes))

    def _arguments(self, given: Sequence[Any]) -> list[Any] | None:
        """What the kernel is given; None if it does not take that."""
        for place in self._tensors:
            if not given[place]._c_contiguous:  # noqa: SLF001 - `flags` makes an object at each call
                return None
        arguments = [given[place] for place in self._inputs]
        with suppress(OverflowError):  # a number is compared with what the dtype does not hold
            for place, of_dtype, constant in self._numbers:
                arguments.append(constant if place < 0 else of_dtype(given[place]))
            arguments += [given[place] for place in self._outputs]
            return arguments
        return None


class Shape(NamedTuple):
    """How a kernel is launched: its grid, and what follows its tensors and numbers."""

    grid: tuple[int]
    sizes: tuple[Any, ...]


def grid_of(threads: int) -> tuple[int]:
    """The grid of so many threads."""
    return (-(-threads // THREADS),)
