"""Graphs of launches on the device: chains, products, arguments that move, and the ops that can be captured, each
against the list of the same calls, bit for bit. The costs of a node and of a launch are figures.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from tensord.interpreter.schema.infer import infer_once
from tensord.interpreter.schema.opdef import REGISTRY, OpDef, find, lacking
from tensord.interpreter.types.meta import Meta
from tensord.streams.cuda.own_kernel import OwnKernel
from tensord.streams.device import KernelCall
from tensord.streams.graph import NODE_BYTES, GraphRefusal, LaunchGraph, Moving

from ..streams.conftest import Reports
from ..streams.cuda.on_launcher import OnLauncher
from .bare_device import on_a_device
from .op_cases import SPECIAL, Case, cases, dtypes_of, seen
from .stage import Given, main

MIB = 1 << 20
TURNS = 20
PRODUCTS = (
    ((128, 64), (64, 256)),
    ((64, 128), (128, 10)),
    ((3, 5), (5, 7)),
    ((4, 8, 64, 32), (4, 8, 32, 64)),
    ((4, 8, 64, 32), (32, 64)),
    ((1024, 1024), (1024, 1024)),
)


class Proof:
    """The checks, on a device without a machine."""

    def __init__(self, given: Given, device: Any, reports: Reports) -> None:
        self.given = given
        self.on = OnLauncher(device, reports)
        self.device, self.xp = device, device.xp
        self.length = 1000 if given.is_real else 50

    # -- chains ----------------------------------------------------------------------------------------------------

    def a_chain_of_adds(self) -> None:
        """A thousand of them on 16 elements, as a list and as a graph, also with other operands at both ends."""
        x, y, one = self.array(np.arange(16.0, dtype=np.float32)), self.array(np.zeros(16, np.float32)), 0.1
        add = self.kernel("add", x, one)
        calls = [(add, (x, one, y)), *[(add, (y, one, y)) for _ in range(self.length - 1)]]
        listed = self.listed(calls, y)
        before = self.free()
        graph = self.on.graph(calls)
        self.on.launch(graph)
        assert self.bits(y) == listed, "the graph gives other bits than the list"
        taken = (before - self.free() - graph.nbytes) / graph.nodes
        self.given.record.figure("memory of the driver's for a node", round(taken), "bytes", counted=NODE_BYTES)
        if isinstance(add, OwnKernel):
            assert graph.nodes == self.length
            self.patched(graph, add, calls)
        elif self.given.is_real:
            raise AssertionError("an add of float32 is no kernel of our own")
        self.cost(calls, graph)

    def free(self) -> int:
        """Bytes of the GPU that are free."""
        found: int = self.on.run(self.xp.cuda.runtime.memGetInfo)[0]
        return found

    def patched(self, graph: LaunchGraph, add: Any, calls: Sequence[Any]) -> None:
        """Another operand, number and result."""
        x2, y2 = self.array(np.full(16, 3, np.float32)), self.array(np.zeros(16, np.float32))
        y, last = calls[-1][1][0], len(calls) - 1
        assert graph.patch(0, (x2, 0.25, y))
        assert graph.patch(last, (y, 0.5, y2))
        self.on.launch(graph)
        found = self.bits(y2)
        other = [(add, (x2, 0.25, y)), *calls[1:-1], (add, (y, 0.5, y2))]
        assert found == self.listed(other, y2), "the patched graph gives other bits than the list"
        assert graph.patch(0, calls[0][1])
        assert graph.patch(last, calls[-1][1])

    def cost(self, calls: Sequence[Any], graph: LaunchGraph) -> None:
        """The time of the list and of the graph for each call: to launch, and until the device is done."""
        synchronize = self.device.compute[0].raw.synchronize

        def each(body: Callable[[], object]) -> tuple[float, float]:
            launched, done = [], []
            for _ in range(TURNS):
                synchronize()
                begun = time.perf_counter()
                body()
                launched.append(time.perf_counter() - begun)
                synchronize()
                done.append(time.perf_counter() - begun)
            return statistics.median(launched), statistics.median(done)

        def as_list() -> None:
            for kernel, arguments in calls:
                kernel(*arguments)

        (listed, listed_done), (launch, done) = self.on.run(lambda: (each(as_list), each(graph.launch)))
        figure, n = self.given.record.figure, len(calls)
        figure("a chain as a list: launching, a call", round(1e6 * listed / n, 2), "us")
        figure("a chain as a list: until it is done, a call", round(1e6 * listed_done / n, 2), "us")
        figure("a chain as a graph: the launch", round(1e6 * launch, 2), "us")
        figure("a chain as a graph: until it is done, a node", round(1e6 * done / n, 2), "us")
        patch, _ = self.on.run(lambda: each(lambda: graph.patch(0, calls[0][1])))
        figure("a patch of a kernel's node", round(1e6 * patch, 2), "us")

    # -- products --------------------------------------------------------------------------------------------------

    def products(self) -> None:
        """CuPy's products, in and outside of a graph."""
        rng = np.random.default_rng(0)
        for dtype in ("float32", "float64", "float16", "complex64", "complex128", "int32"):
            for left, right in PRODUCTS if self.given.is_real else PRODUCTS[:-1]:
                x, y = (self.array((rng.random(shape) * 8).astype(dtype)) for shape in (left, right))
                self.same_product(x, y)
                if x.ndim == 2 and y.ndim == 2:
                    self.same_product(y.T, x.T)

    def same_product(self, x: Any, y: Any) -> None:
        """The bits of one, with two graphs that share the workspace."""
        kernel, (out,) = self.kernel("matmul", x, y), self.results("matmul", x, y)
        calls = [(kernel, (x, y, out))]
        listed = self.listed(calls, out)
        found = [self.on.attempt(calls) for _ in range(2)]
        for graph in found:
            what = f"{x.dtype} {x.shape} @ {y.shape}"
            if isinstance(graph, GraphRefusal):
                assert x.dtype == np.float16 or not self.given.is_real, f"{what}: {graph.reason}"
                continue
            self.clear(out)
            self.on.launch(graph)
            assert self.bits(out) == listed, f"{what}: the graph gives other bits than CuPy"

    def arguments_that_move(self) -> None:
        """The operands and the result of a product lie elsewhere at the second launch."""
        rng = np.random.default_rng(1)
        first, second = (
            [self.array(rng.random(shape).astype(np.float32)) for shape in ((128, 64), (64, 256), (128, 256))]
            for _ in range(2)
        )
        kernel = self.kernel("matmul", first[0], first[1])
        expected = [self.listed([(kernel, given)], given[2]) for given in (first, second)]
        moving = [Moving(0, 0), Moving(0, 1), Moving(0, 2, read=False, written=True)]
        graph = self.on.graph([(kernel, first)], moving)
        assert graph.copies == 3
        for given in (first, second):
            self.clear(given[2])
            assert graph.patch(0, given)
            self.on.launch(graph)
        assert [self.bits(given[2]) for given in (first, second)] == expected
        if self.given.is_real:
            begun = time.perf_counter()
            for _ in range(TURNS):
                graph.patch(0, first)
                graph.patch(0, second)
            taken = (time.perf_counter() - begun) / (2 * TURNS * 3)
            self.given.record.figure("a patch of a copy's node", round(1e6 * taken, 2), "us")

    # -- refusals, memory ------------------------------------------------------------------------------------------

    def what_is_refused_leaves_nothing_behind(self) -> None:
        """A wait, an FFT and an error within a capture; then a graph that works."""
        x, y = self.array(np.ones((8, 8), np.float32)), self.array(np.zeros((8, 8), np.float32))

        def fail(*_: Any) -> None:
            raise ValueError("no")

        refused = {
            "a wait": lambda x, y: self.xp.add(x, float(x.sum()), y),
            "an FFT": lambda x, _: self.xp.fft.fft(x),
            "an error": fail,
            "an inverse": lambda x, _: self.xp.linalg.inv(x),
        }
        self.on.run(lambda: (self.xp.fft.fft(x), self.xp.linalg.inv(self.xp.eye(8, dtype=np.float32))))
        for name, kernel in refused.items():
            reason = self.on.refused([(self.xp.negative, (x, y)), (kernel, (x, y))])
            assert reason.call == 1, reason
            self.given.record.note(f"refused: {name}: {reason.reason}")
            self.on.launch(self.on.graph([(self.xp.negative, (x, y))]))
            assert (self.values(y) == -1).all()
            assert self.device.lost is None

    def a_graph_dropped_in_flight(self) -> None:
        """Its temporaries stay until the device is done with them, and are free then."""
        elements = 16 * MIB if self.given.is_real else MIB
        x, y = self.array(np.ones(elements, np.float32)), self.array(np.zeros(elements, np.float32))

        def kernel(x: Any, y: Any) -> None:
            z = self.xp.add(x, x)
            for _ in range(20):
                z = self.xp.add(z, x)
            self.xp.add(z, x, y)

        def launch_and_drop() -> None:
            graph.launch()
            graph.drop()

        self.on.run(lambda: kernel(x, y))
        before = self.device._memory.used_bytes()
        graph = self.on.graph([(kernel, (x, y))])
        held = graph.nbytes
        self.on.run(launch_and_drop, after=False)
        self.device.got_to(0)
        other = self.on.run(lambda: [self.xp.full(elements, 7, np.float32) for _ in range(4)])
        assert held >= 2 * x.nbytes
        assert (self.values(y) == 23).all()
        del other
        for _ in range(3):
            self.device.got_to(0)
            self.on.run(lambda: None)
        assert self.device._memory.used_bytes() <= before, "the graph has not given back its memory"

    # -- every op --------------------------------------------------------------------------------------------------

    def every_op(self) -> None:
        """Ordinary calls of each op: captured, with the bits of the call itself, or refused."""
        refused: dict[str, str] = {}
        captured = 0
        names = [name for name in sorted(REGISTRY) if name not in lacking(self.xp)]
        for index, name in enumerate(names):
            if self.given.remaining < 10:
                self.given.record.unreached(len(names) - index, len(names), "the time is over")
                break
            for case in ordinary_cases(find(name)):
                why = self.one(case)
                if why is None:
                    captured += 1
                else:
                    refused.setdefault(name, why)
        self.given.record.figure("calls of ops that are captured", captured)
        self.given.record.figure("ops of which a call is refused", len(refused))
        for reason in sorted(set(refused.values())):
            ops = ", ".join(name for name, why in refused.items() if why == reason)
            self.given.record.note(f"refused: {reason}: {ops}")

    def one(self, case: Case) -> str | None:
        """The reason why a call is refused; None if it is captured, with the same bits. AssertionError if the bits
        differ.
        """
        operands = [self.array(x) if isinstance(x, np.ndarray) else x for x in case.operands]
        operands = [seen(x, strided=case.strided) if hasattr(x, "ndim") else x for x in operands]
        attributes = dict(case.attributes)
        kernel = self.kernel(case.op, *operands, **attributes)
        results = self.results(case.op, *operands, **attributes)
        given = (*operands, *results)
        try:
            self.on.run(partial(kernel, *given))
        except Exception as error:
            return f"the call itself raises {type(error).__name__}"
        listed = [self.bits(result) for result in results]
        graph = self.on.attempt([(kernel, given)])
        if isinstance(graph, GraphRefusal):
            return graph.reason
        self.clear(*results)
        self.on.launch(graph)
        assert [self.bits(result) for result in results] == listed, f"{case}: the graph gives other bits"
        graph.drop()
        return None

    # -- calls -----------------------------------------------------------------------------------------------------

    def array(self, values: Any) -> Any:
        """An array on the device."""
        return self.on.run(lambda: self.xp.asarray(values))

    def values(self, array: Any) -> Any:
        """Its values on the host."""
        return self.on.run(array.get)

    def clear(self, *arrays: Any) -> None:
        """Forget the values that a list of calls has left there."""
        self.on.run(lambda: [array.fill(0) for array in arrays])

    def bits(self, array: Any) -> bytes:
        """The bits of an array's values."""
        found: bytes = self.values(array).tobytes()
        return found

    def call(self, name: str, operands: Sequence[Any], attributes: dict[str, Any]) -> KernelCall:
        """The call in the form of a plan."""
        op = find(name)
        frozen = op.freeze(attributes)
        metas = tuple([Meta.of(x.shape, x.dtype) if hasattr(x, "ndim") else type(x) for x in operands])
        return KernelCall(op, dict(frozen), metas, infer_once(op, metas, frozen), False, 0)

    def kernel(self, name: str, *operands: Any, **attributes: Any) -> Any:
        """The device's kernel for an op."""
        return self.device.bind_kernel(self.call(name, operands, attributes))[0]

    def results(self, name: str, *operands: Any, **attributes: Any) -> list[Any]:
        """Arrays for its results, where their shapes are known."""
        metas = [meta for meta in self.call(name, operands, attributes).outputs if meta is not None]
        return [self.array(np.zeros(meta.shape, meta.dtype)) for meta in metas]

    def listed(self, calls: Sequence[Any], out: Any) -> bytes:
        """The bits of a result, by the list of calls."""

        def run() -> None:
            for kernel, arguments in calls:
                kernel(*arguments)

        self.on.run(run)
        return self.bits(out)


def ordinary_cases(op: OpDef) -> list[Case]:
    """Two calls of an op, in the commonest dtype that it takes."""
    found = dtypes_of(op)
    dtype = next((name for name in ("float32", "int64") if name in found), found[0])
    return [case for case in cases(op, dtype) if case.what not in {SPECIAL, "empty"}][:2]


CHECKS = (
    Proof.a_chain_of_adds,
    Proof.products,
    Proof.arguments_that_move,
    Proof.what_is_refused_leaves_nothing_behind,
    Proof.a_graph_dropped_in_flight,
    Proof.every_op,
)


if __name__ == "__main__":
    main(partial(on_a_device, Proof, CHECKS))
