"""Runs whose launches have become a graph, over the fake of CUDA's runtime, which has graphs."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.streams.cuda.direct import DirectKernels
from tensord.streams.cuda.own_kernel import KernelLaunch, OwnKernel
from tensord.vm.routines.running import graphing
from tensord.vm.routines.running.graphing import GRAPHS, SEEN

from ..compiled import replaces_parts
from ..streams.fake_cuda.gpu import Gpu
from ..streams.fake_cuda.graphs import Kernel, at
from ..streams.fake_cuda.module import installed
from .looking_inside import assert_sound, device_of, run_until_graph

SIZE = 16
ROUNDS = 24
CUDA: list[Any] = ["cpu:0", {"name": "cuda:0", "memory": "64MiB", "cache": "8MiB"}]


class Own(OwnKernel):
    """A kernel of our own, for an elementwise call on packed operands; the values are computed by NumPy."""

    def __init__(self, gpu: Gpu, call: Any, library: Any) -> None:
        self.function, self.library = getattr(np, call.op.ufunc), library
        self.gpu, (self.result,) = gpu, call.outputs
        self.metas = (*call.metas, self.result)
        self.kernel = Kernel(gpu, [each if isinstance(each, type) else None for each in self.metas], self.run)

    def run(self, *given: Any) -> None:
        values = [
            one if isinstance(meta, type) else at(self.gpu, one, meta.shape, meta.dtype)
            for one, meta in zip(given, self.metas, strict=True)
        ]
        self.function(*values[:-1], out=values[-1])

    def __call__(self, *arrays: Any) -> Any:
        launch = self.launch_of(arrays)
        if launch is None:
            return self.library(*arrays)
        return launch.function(launch.grid, launch.block, tuple(launch.arguments))

    def launch_of(self, arrays: Any) -> KernelLaunch | None:
        if not all(each.flags.c_contiguous for each in arrays if hasattr(each, "flags")):
            return None
        values = [np.float64(each) if isinstance(each, float) else each for each in arrays]
        return KernelLaunch(self.kernel, (1,), (256,), values)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpu]:
    """A GPU on which elementwise ops are kernels of our own."""
    with installed(Gpu(seed=1, memory=1 << 30)) as fake:

        def own(kernels: Any, call: Any) -> Own | None:
            known = [meta for meta in call.metas if meta is not None]
            if len(call.outputs) != 1 or call.outputs[0] is None or not call.op.is_ufunc(known):
                return None
            return Own(fake, call, getattr(kernels._cupy, str(call.op.ufunc)))

        monkeypatch.setattr(DirectKernels, "kernel_of", own)
        yield fake


@pytest.fixture
def session(gpu: Gpu) -> Iterator[Any]:  # noqa: ARG001 - it has to be there before
    with td.connect("local", devices=CUDA) as one:
        yield one


def put(session: Any, values: Any) -> Any:
    return session.asarray(np.asarray(values, np.float64), device="cuda:0").wait()


def graph_in(routine: Any) -> dict[str, Any]:
    """The report on the graph of a routine with one segment."""
    (piece,) = routine.report()["pieces"]
    found: dict[str, Any] = piece["graph"]
    return found


def test_runs_are_one_launch_each_and_their_operands_their_own(gpu: Gpu, session: Any) -> None:
    x, y = put(session, np.arange(SIZE)), put(session, np.ones(SIZE))
    f = session.routine(lambda x, y, number: ((x + y) * number - y, x * y))
    run_until_graph(gpu, session, lambda: f(x, y, 2.0))
    gpu.calls.clear()
    others = [put(session, np.arange(SIZE) * n) for n in range(5)]
    found = [f(each, y, float(n)) for n, each in enumerate(others)]
    for n, (first, second) in enumerate(found):
        values = np.arange(SIZE) * n
        np.testing.assert_array_equal(first.numpy(), (values + 1.0) * n - 1.0)
        np.testing.assert_array_equal(second.numpy(), values)
    assert gpu.calls["graphLaunch"] == len(others)
    assert gpu.calls["launchKernel"] == 0
    assert graph_in(f)["nodes"] >= 4
    assert session.trace().verify() == []
    assert_sound(session)


def test_a_loop_of_graphs_waits_for_nothing_on_the_host(gpu: Gpu, session: Any) -> None:
    w, g = put(session, np.full(SIZE, 100.0)), put(session, np.ones(SIZE))

    def step(w: Any, g: Any) -> Any:
        change = g * 0.5 + g
        w -= change
        return change

    f = session.routine(step)
    run_until_graph(gpu, session, lambda: f(w, g))
    before = w.numpy()[0]
    gpu.blocked.clear()
    for _ in range(50):
        f(w, g)
    session.flush()
    assert not gpu.blocked["MainThread"]
    assert w.numpy()[0] == before - 75.0
    assert_sound(session)


def clipped(xp: Any, value: Any) -> Any:
    """Whole numbers that stay small, so that each order of a sum has the same bits."""
    return xp.minimum(xp.maximum(value, -4.0), 4.0)


def random_step(rng: random.Random) -> Callable[..., Any]:
    """A function of two matrices, weights that it writes, and a number."""
    names = ["add", "subtract", "multiply", "matmul", "maximum", "number", "in place", "transposed", "row sums"]
    steps = [(rng.choice(names), rng.random(), rng.random()) for _ in range(rng.randint(4, 14))]

    def step(xp: Any, x: Any, y: Any, weights: Any, number: float) -> Any:
        values = [x, y, weights]
        for name, first, second in steps:
            a, b = (values[int(one * len(values))] for one in (first, second))
            if name == "number":
                found = a * number + b
            elif name == "in place":
                weights += clipped(xp, a)
                weights *= 0.0  # whole numbers, also after many rounds
                weights += clipped(xp, b + 0.0)
                continue
            elif name == "transposed":
                found = xp.add(xp.permute_dims(a, (1, 0)) if xp is not np else a.T, b)
            elif name == "row sums":
                found = a - xp.sum(b, axis=1, keepdims=True)
            else:
                found = getattr(xp, name)(a, b)
            values.append(clipped(xp, found))
        return values[-1], values[-2] * 1.0

    return step


@replaces_parts
@pytest.mark.parametrize("seed", range(8))
def test_random_routines_have_the_bits_of_numpy_run_by_run(
    session: Any, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graphing, "SEEN", 2)
    rng = random.Random(seed)
    step = random_step(rng)
    f = session.routine(lambda x, y, weights, number: step(session.xp, x, y, weights, number))
    shape = (SIZE, SIZE)
    arrays = [np.array([rng.randint(-2, 2) for _ in range(SIZE * SIZE)], np.float64).reshape(shape) for _ in range(4)]
    tensors = [put(session, each) for each in arrays]
    weights, twin = put(session, arrays[0]), arrays[0].copy()
    kept: list[tuple[Any, Any]] = []
    for turn in range(ROUNDS):
        first, second, number = rng.randrange(len(arrays)), rng.randrange(len(arrays)), rng.choice((1.0, 1.0, 2.0))
        given = f(tensors[first], tensors[second], weights, number)
        wanted = step(np, arrays[first], arrays[second], twin, number)
        kept += zip(given, wanted, strict=True)
        if turn % 3 == 0:
            arrays.append(wanted[0])
            tensors.append(given[0])
        if turn % 4 == 0:  # a graph is made meanwhile
            session.sync()
    for tensor, wanted_one in kept:
        np.testing.assert_array_equal(tensor.numpy(), wanted_one)
    np.testing.assert_array_equal(weights.numpy(), twin)
    assert session.trace().verify() == []
    assert_sound(session)


def test_a_graph_is_given_up_where_memory_is_short_and_runs_go_on(gpu: Gpu, session: Any) -> None:
    x = put(session, np.arange(SIZE))
    f = session.routine(lambda x: (x + 1.0) * x)
    run_until_graph(gpu, session, lambda: f(x))
    device_of(session, "cuda:0")._graphs.give_up()
    gpu.calls.clear()
    np.testing.assert_array_equal(f(x).numpy(), (np.arange(SIZE) + 1.0) * np.arange(SIZE))
    assert gpu.calls["graphLaunch"] == 0
    run_until_graph(gpu, session, lambda: f(x))
    assert_sound(session)


@replaces_parts
def test_a_graph_that_was_made_while_kernels_were_compiled_is_made_again(
    gpu: Gpu, session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pending = [True]
    monkeypatch.setattr(graphing, "COMPILING", SEEN)
    monkeypatch.setattr(graphing, "is_pending", lambda _call: pending[0])
    x = put(session, np.arange(SIZE))
    f = session.routine(lambda x: (x + 1.0) * x)
    run_until_graph(gpu, session, lambda: f(x))
    (first,) = device_of(session, "cuda:0")._graphs._living
    pending[0] = False
    f(x).wait()
    assert first.dropped
    run_until_graph(gpu, session, lambda: f(x))
    np.testing.assert_array_equal(f(x).numpy(), (np.arange(SIZE) + 1.0) * np.arange(SIZE))
    assert_sound(session)


def test_what_no_graph_takes_runs_call_by_call_and_the_report_says_why(session: Any) -> None:
    """A number in a library's kernel is baked into the graph; this number differs in each run."""
    x = put(session, np.arange(SIZE))
    y = put(session, np.arange(2 * SIZE))[::2].wait()  # none of our kernels takes a view with gaps
    f = session.routine(lambda x, y, number: (y * number) + x)
    for n in range((SEEN + 30) * GRAPHS):
        found = f(x, y, float(n))
        session.sync()
        np.testing.assert_array_equal(found.numpy(), np.arange(0, 2 * SIZE, 2.0) * n + np.arange(SIZE))
    assert graph_in(f)["why"] == "an operand or a number of a library's kernel has changed again and again"
    assert_sound(session)


def test_a_graph_that_cannot_be_launched_is_no_loss(gpu: Gpu, session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x = put(session, np.arange(SIZE))
    f = session.routine(lambda x: (x + 1.0) * x)
    run_until_graph(gpu, session, lambda: f(x))

    def refuse(*_what: Any) -> None:
        raise RuntimeError("no launch today")

    monkeypatch.setattr(type(device_of(session, "cuda:0")._graphs._driver), "launch", refuse)
    np.testing.assert_array_equal(f(x).numpy(), (np.arange(SIZE) + 1.0) * np.arange(SIZE))
    assert graph_in(f)["why"] == "RuntimeError: no launch today"
    assert_sound(session)


def test_the_end_of_a_session_ends_its_graphs(gpu: Gpu) -> None:
    with td.connect("local:graphs", devices=CUDA) as keeps, td.connect("local:graphs") as session:
        x = put(session, np.arange(SIZE))
        f = session.routine(lambda x: (x + 1.0) * x)
        run_until_graph(gpu, session, partial(f, x))
        graphs = device_of(keeps, "cuda:0")._graphs
        session.close()
        keeps.sync()
        assert not [graph for graph in graphs._living if not graph.dropped]
