"""Generated kernels on the device: random fusions against their steps, single ops against CuPy's calls, bit for bit.

The part of the memory's bandwidth that a fusion reaches is a figure.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from tensord.interpreter.programs.builder import Builder
from tensord.interpreter.programs.fusion import Fusion, finding_fusions
from tensord.interpreter.programs.program import Program
from tensord.interpreter.schema.infer import infer_once
from tensord.interpreter.schema.opdef import REGISTRY, find
from tensord.interpreter.types.meta import Meta
from tensord.streams.cuda.block_kernel import BlockKernel
from tensord.streams.cuda.row_kernels import RowKernel
from tensord.streams.device import KernelCall

from ..streams.conftest import Reports
from ..streams.cuda.on_launcher import OnLauncher
from ..streams.cuda.random_fusions import LONGER, SHAPES, UNEVEN, Writer, arguments, is_array
from .bare_device import on_a_device
from .op_cases import Case, cases
from .stage import Given, main

DTYPES = ("bool", "int8", "int32", "uint64", "float32", "float64")
TURNS = 10


class Proof:
    """The checks, on a device without a machine."""

    def __init__(self, given: Given, device: Any, reports: Reports) -> None:
        self.given = given
        self.on = OnLauncher(device, reports)
        self.device, self.xp = device, device.xp

    def random_fusions(self) -> None:
        """Compare random fusions with their steps, which have kernels of their own, to the last bit of a NaN."""
        found = 0
        for shapes in (SHAPES, LONGER, UNEVEN) if self.given.is_real else (SHAPES, LONGER):
            for seed in range(30 if self.given.is_real else 1):
                for program, fusion, kernel in self.fusions(Writer(seed, shapes).program(12)):
                    self.same(kernel, kernel.instead, arguments(program, fusion, seed), len(fusion.inputs))
                    found += 1
        assert found > 30 or not self.given.is_real, f"{found} fusions"
        self.given.record.figure("random fusions", found)

    def fusions(self, program: Program) -> Iterator[tuple[Program, Fusion, BlockKernel]]:
        """The fusions of a program, and their kernels."""
        for several in finding_fusions(program, [self.device.fusion_terms()]):
            for fusion in several:
                kernel = self.device.fuse(program, fusion, 0)
                if isinstance(kernel, BlockKernel):
                    yield program, fusion, kernel

    def same(self, kernel: Any, other: Any, given: Sequence[Any], inputs: int) -> None:
        """Both kernels give the same bits."""
        found = [self.results(run, given, inputs) for run in (kernel, other)]
        assert found[0] == found[1], kernel.source

    def results(self, kernel: Any, given: Sequence[Any], inputs: int) -> list[bytes]:
        """The bits that a kernel leaves in its outputs; a kernel of a fusion is compiled first."""

        def run() -> list[Any]:
            if isinstance(kernel, BlockKernel):
                functions = self.device._fused.sources.compile_now(kernel.digest, kernel.source)
                assert functions is not None or not self.given.is_real, kernel.source
            arrays = {id(x): self.xp.asarray(np.array(x)) for x in given if is_array(x)}
            operands = [arrays.get(id(x), x) for x in given]
            kernel(*operands)
            return operands[inputs:]

        outputs = self.on.run(run)
        return [self.on.run(array.get).tobytes() for array in outputs]

    def single_ops(self) -> None:
        """Calls of each op that is one kernel, against CuPy's calls for the same op."""
        tried = 0
        for case in (case for op in REGISTRY.values() if op.pointwise for dtype in DTYPES for case in cases(op, dtype)):
            if self.given.remaining < 10:
                self.given.record.note(f"the time is over, at {case}")
                break
            tried += self.single(case)
        assert tried > 500 or not self.given.is_real, f"{tried} calls"
        self.given.record.figure("calls of ops that are one kernel", tried)

    def single(self, case: Case) -> bool:
        """Is the call one of a generated kernel? AssertionError if its bits differ from CuPy's."""
        call = call_of(case)
        kernel = None if case.strided else self.device.bind_kernel(call)[0]
        if not isinstance(kernel, BlockKernel):
            return False
        operands = [*case.operands, *(np.zeros(meta.shape, meta.dtype) for meta in call.outputs if meta is not None)]
        own = call.op.bind(self.xp, len(call.metas), call.attributes)
        try:
            self.same(kernel, own, operands, len(case.operands))
        except AssertionError as error:
            raise AssertionError(f"{case}: other bits than CuPy's\n{error}") from None
        return True

    def rows(self) -> None:
        """Softmax and norms, against CuPy's, whose sums have another order."""
        dtypes = ("float32", "float64") if self.given.is_real else ("float64",)
        names = ("softmax", "log_softmax", "layer_norm") if self.given.is_real else ("softmax",)
        for name, dtype in ((name, dtype) for name in names for dtype in dtypes):
            shape = (300, 777) if self.given.is_real else (2, 70)
            x = np.random.default_rng(0).normal(size=shape).astype(dtype)
            op = REGISTRY[name]
            frozen = op.freeze({})
            metas = (Meta.of(x.shape, dtype),)
            call = KernelCall(op, dict(frozen), metas, infer_once(op, metas, frozen), False, 0)
            kernel = self.device.bind_kernel(call)[0]
            assert isinstance(kernel, RowKernel), name
            both = [kernel, op.bind(self.xp, 1, dict(frozen))]
            found, other = (np.frombuffer(self.results(run, [x, np.zeros_like(x)], 1)[0], dtype) for run in both)
            assert np.abs(found - other).max() <= 64 * np.finfo(dtype).eps * np.abs(other).max(), name

    def bandwidth(self) -> None:
        """`((x * 2 + 1) * x - 3) * x`, against a copy of as many bytes."""
        elements = 10**8 if self.given.is_real else 10**4
        builder = Builder()
        value = x = builder.parameter(Meta.of((elements,), "float32"))
        for op, number in (("multiply", 2.0), ("add", 1.0), ("multiply", None), ("subtract", 3.0), ("multiply", None)):
            other = x if number is None else ~builder.number("float", "constant", (), number)
            (value,) = builder.op(op, [value, other])
        for program, fusion, kernel in self.fusions(builder.finish([value])):
            array, out = self.on.run(lambda: [self.xp.zeros(elements, np.float32) for _ in range(2)])
            given = [array if n >= 0 else program.numbers[~n].value for n in fusion.inputs]
            self.on.run(lambda kernel=kernel: self.device._fused.sources.compile_now(kernel.digest, kernel.source))
            fused, copy = self.on.run(
                lambda kernel=kernel, given=given, array=array, out=out: (
                    self.taken(lambda: kernel(*given, out)),
                    self.taken(lambda: self.device.copy(out, array)),
                )
            )
            self.given.record.figure("a fusion of five ops: part of a copy's bandwidth", round(100 * copy / fused), "%")

    def taken(self, body: Any) -> float:
        """Seconds until the device is done."""
        synchronize, times = self.device.compute[0].raw.synchronize, []
        for _ in range(TURNS):
            synchronize()
            begun = time.perf_counter()
            body()
            synchronize()
            times.append(time.perf_counter() - begun)
        return statistics.median(times)


def call_of(case: Case) -> KernelCall:
    """The call in the form of a plan."""
    op = find(case.op)
    attributes = op.freeze(dict(case.attributes))
    metas = tuple([Meta.of(x.shape, x.dtype) if is_array(x) else type(x) for x in case.operands])
    return KernelCall(op, dict(attributes), metas, infer_once(op, metas, attributes), False, 0)


CHECKS = (Proof.random_fusions, Proof.single_ops, Proof.rows, Proof.bandwidth)


if __name__ == "__main__":
    main(partial(on_a_device, Proof, CHECKS))
