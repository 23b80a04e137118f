"""Generated kernels, compiled by NVIDIA's compiler, and the machine code of the loops that they are made of."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from typing import Any

import pytest

from tensord.interpreter.errors import TensordError
from tensord.interpreter.schema.opdef import REGISTRY, find
from tensord.interpreter.types.joined_axes import JoinedAxes
from tensord.interpreter.types.meta import Meta
from tensord.streams.cuda import direct
from tensord.streams.cuda.block import KernelBlock, block_of
from tensord.streams.cuda.block_source import source_of
from tensord.streams.cuda.fused import FusedKernels
from tensord.streams.cuda.loops import NAMES, UfuncLoop

from .host_compiled import dtypes
from .loops_of_cupy import LOOPS
from .nvrtc import Compiler
from .random_fusions import alone

pytestmark = pytest.mark.cupy

ATTRIBUTES: dict[str, list[dict[str, Any]]] = {
    "astype": [{"dtype": name} for name in ("bool", "int32", "float32", "float64")],
    "gelu": [{"approximate": "tanh"}, {"approximate": "none"}],
    "gelu_grad": [{"approximate": "tanh"}, {"approximate": "none"}],
}
OPS = [(name, ("float32", "float64", "int8", "uint64")[n % 4]) for n, name in enumerate(REGISTRY)]
OPS += [(name, "float32") for name in REGISTRY]


def test_cupy_has_the_loops_that_these_tests_have() -> None:
    cupy = Compiler.here().cupy
    for name, loops in LOOPS.items():
        known = {(tuple(each.in_types), tuple(each.out_types)): each.routine for each in getattr(cupy, name)._ops.ops}
        for taken, given, code in loops:
            assert known[dtypes(taken), dtypes(given)] == code, name


def test_kernels_of_all_ops_compile() -> None:
    compiler = Compiler.here()
    kernels = FusedKernels(compiler.cupy, lambda _work: None, nullcontext)
    blocks = [found[0] for name, dtype in OPS if (found := blocks_of(kernels, name, dtype))]
    assert {"gelu", "relu_grad", "floor_divide", "where", "round"} <= {
        line.op for each in blocks for line in each.lines
    }
    assert len(blocks) > 80
    compiler.compile([source_of(block) for block in blocks], "--fmad=false")


def test_the_machine_code_of_a_loop_that_is_fused_is_the_same_with_and_without_contractions() -> None:
    """CuPy compiles with them, fused kernels without."""
    compiler = Compiler.here()
    kernels = FusedKernels(compiler.cupy, lambda _work: None, nullcontext)
    blocks = [block for name in REGISTRY for dtype in NAMES for block in blocks_of(kernels, name, dtype)]
    loops = dict.fromkeys((line.name, line.loop) for block in blocks for line in block.lines)
    assert len(loops) > 200
    alone = [source_of_loop(loop) for _, loop in loops]
    joined, separate = compiler.compile(alone), compiler.compile(alone, "--fmad=false")
    pairs = zip(loops, joined, separate, strict=True)
    assert [(name, loop.taken) for (name, loop), one, other in pairs if one != other] == []


def source_of_loop(loop: UfuncLoop) -> str:
    """The source of a kernel that computes a loop for each element."""
    metas = [Meta.of((1000,), dtype) for dtype in loop.taken]
    return direct.source_of(loop, metas, JoinedAxes.of([(1000,)] * (len(metas) + 1)), "uint32")


def blocks_of(kernels: FusedKernels, name: str, dtype: str) -> list[KernelBlock]:
    """Blocks of an op alone, for a row, a column and a number beside a matrix; or for matrices."""
    op, found = find(name), []
    if not op.elementwise or op.inputs < 1:
        return []
    whole, row, column = (Meta.of(shape, dtype) for shape in ((6, 8), (8,), (6, 1)))
    number: Any = {"b": bool, "f": float}.get(whole.dtype.kind, int)
    condition = [Meta.of((6, 8), "bool")] if name == "where" else []
    for metas in ((whole, row, column), (row, whole, number), (column, number, whole), (whole, whole, whole)):
        for attributes in ATTRIBUTES.get(name, [{}]):
            with suppress(TensordError):
                program, fusion = alone(name, (*condition, *metas)[: op.inputs], attributes)
                if kernels.takes(program, program.steps[0]):
                    block = block_of(program, fusion, kernels.trace_of)
                    assert block is not None
                    found.append(block)
    return found
