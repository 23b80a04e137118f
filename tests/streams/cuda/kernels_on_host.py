"""Generated kernels of fusions that run on the host, and the kernels of their steps."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from tensord.interpreter.programs.fusion import Fusion, finding_fusions
from tensord.interpreter.programs.program import Program
from tensord.streams.cuda.block_kernel import BlockKernel
from tensord.streams.cuda.direct import DirectKernels
from tensord.streams.cuda.fused import FusedKernels
from tensord.streams.cuda.unfused import Unfused
from tensord.streams.device import KernelCall

from .host_compiled import HostKernels
from .loops_of_cupy import LOOPS
from .random_fusions import alone

# NumPy chooses another one of two zeros, or rounds differently, than C++.
UNLIKE = {"maximum", "minimum", "relu", "exp", "tanh", "sigmoid", "silu"}


class Collecting(DirectKernels):
    """Keeps the sources of its kernels."""

    def __init__(self, cupy: Any) -> None:
        super().__init__(cupy)
        self.sources: set[str] = set()

    def launching(self, source: str, *rest: Any) -> Any:
        self.sources.add(source)
        return super().launching(source, *rest)


class Host:
    """Generated kernels that run on the host. `waiting`: functions that need the compiled kernels."""

    def __init__(self, folder: Path) -> None:
        self.cupy = HostKernels(folder, LOOPS)
        self.waiting: list[Callable[[], None]] = []
        self.kernels = FusedKernels(self.cupy, self.waiting.append, nullcontext)
        self.direct = Collecting(self.cupy)
        self.made: list[BlockKernel] = []

    def compile(self) -> None:
        """Compile all sources at once, then call the waiting functions."""
        self.cupy.compile([*{kernel.source for kernel in self.made}, *self.direct.sources])
        for work in self.waiting:
            work()
        self.waiting.clear()

    def bind(self, call: KernelCall) -> tuple[Any, int]:
        """A step's own kernel: NumPy's, if its bits are those of C++."""
        if call.op.name in UNLIKE:
            program, fusion = alone(call.op.name, call.metas, call.attributes)
            return self.direct.kernel_of(call) or self.kernel(program, fusion, self.plain), 0
        return self.plain(call)

    def plain(self, call: KernelCall) -> tuple[Any, int]:
        """NumPy's kernel."""
        own = call.op.bind(np, len(call.metas), call.attributes)

        def run(*arrays: Any) -> None:
            with np.errstate(all="ignore"):
                own(*arrays)

        return run, 0

    def kernel(self, program: Program, fusion: Fusion, bind: Any = None) -> BlockKernel:
        """The kernel of a fusion, which is not compiled yet."""
        found = self.kernels.kernel_of(program, fusion, bind or self.bind)
        assert isinstance(found, BlockKernel)
        self.made.append(found)
        return found

    def one_by_one(self, program: Program, fusion: Fusion) -> Unfused:
        """The steps with their own kernels."""
        return Unfused(program, fusion, self.bind, self.kernels._empty, self.kernels._lay_over)

    def fusions(self, program: Program) -> list[Fusion]:
        """The fusions of a program."""
        return [each for found in finding_fusions(program, [self.kernels.terms()]) for each in found]
