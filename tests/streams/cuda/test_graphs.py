"""Graphs of launches over the fake runtime, by seeds: values, memory, the end."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tensord.streams.graph import Moving

from ..fake_cuda.gpu import current_queue
from .graph_bench import COUNT, META, Own, values_of

# --- values


def test_a_graph_does_what_its_calls_do_each_time_it_is_launched(bench):
    own, x, y = Own(bench.gpu), bench.array(range(COUNT)), bench.array(1)
    graph = bench.graph([(own, (x, 0.5, y, x)), (bench.xp.negative, (x, y)), (own, (y, 2.0, x, y))])
    assert graph.nodes == 3
    assert values_of(x).tolist() == list(range(COUNT))  # a capture computes nothing
    expected, other = np.arange(COUNT, dtype=np.float32), np.ones(COUNT, np.float32)
    for _ in range(3):
        bench.launch(graph)
        expected = expected * np.float32(0.5) + other
        other = -expected
        other = other * np.float32(2) + expected
        assert values_of(x).tobytes() == expected.tobytes()
        assert values_of(y).tobytes() == other.tobytes()


def random_calls(rng, bench, arrays):
    """Calls of our own kernels and of CuPy's, some with temporaries."""
    xp, own = bench.xp, Own(bench.gpu)

    def composed(x: Any, y: Any, out: Any) -> None:
        xp.subtract(xp.multiply(x, y), xp.sqrt(xp.absolute(x)), out)

    def product(x: Any, y: Any, out: Any) -> None:
        out[...] = xp.matmul(x.reshape(8, 8), y.reshape(8, 8)).reshape(COUNT)

    calls: list[Any] = []
    for _ in range(rng.randrange(3, 20)):
        x, y, out = (rng.choice(arrays) for _ in range(3))
        kind = rng.randrange(5)
        if kind == 0:
            calls.append((own, [x, rng.random(), y, out]))
        elif kind == 4 and out is not x and out is not y:
            calls.append((product, [x, y, out]))
        else:
            calls.append((rng.choice([xp.add, xp.maximum, composed]), [x, y, out]))
    return calls


@pytest.mark.parametrize("seed", range(12))
def test_graphs_of_random_calls_give_the_bits_of_the_list(bench, seed):
    rng = random.Random(seed)
    start = [np.float32(rng.random()) + np.arange(COUNT, dtype=np.float32) / 64 for _ in range(4)]
    arrays, twins = ([bench.array(each) for each in start] for _ in range(2))
    calls = random_calls(rng, bench, arrays)
    instead = {id(array): twin for array, twin in zip(arrays, twins, strict=True)}
    same = [(kernel, [instead.get(id(each), each) for each in given]) for kernel, given in calls]

    def both(*, last: bool) -> None:
        for kernel, given in same:
            kernel(*given)
        graph.launch()
        if not last:
            bench.xp.add(arrays[0], arrays[1], arrays[0])
            bench.xp.add(twins[0], twins[1], twins[0])

    def once() -> None:
        for kernel, given in (*calls, *same):
            kernel(*given)

    with np.errstate(all="ignore"):
        bench.run(once)
        graph = bench.graph(calls)
        for turn in range(3):
            bench.run(lambda turn=turn: both(last=turn == 2))
    for array, twin in zip(arrays, twins, strict=True):
        assert values_of(array).tobytes() == values_of(twin).tobytes()


@pytest.mark.parametrize("seed", range(8))
def test_graphs_whose_arguments_change_at_random_give_the_bits_of_the_lists(bench, seed):
    """Several launches are on their way at once, each with arguments of its own."""
    rng = random.Random(seed)
    start = [np.float32(rng.random()) + np.arange(COUNT, dtype=np.float32) / 64 for _ in range(6)]
    arrays, twins = ([bench.array(each) for each in start] for _ in range(2))
    kernels: list[Any] = [rng.choice([Own(bench.gpu), bench.xp.maximum, bench.xp.subtract]) for _ in range(10)]

    def drawn() -> list[tuple[int, ...]]:
        return [tuple(rng.randrange(len(arrays)) for _ in range(3)) for _ in kernels]

    def calls(of: Any, arguments: Any) -> list[Any]:
        found = []
        for kernel, (x, y, out) in zip(kernels, arguments, strict=True):
            own = isinstance(kernel, Own)
            found.append((kernel, [of[x], 1 / (x + 1), of[y], of[out]] if own else [of[x], of[y], of[out]]))
        return found

    moving = [
        Moving(call, number, read=number < 2, written=number == 2)
        for call, kernel in enumerate(kernels)
        for number in range(3)
        if not isinstance(kernel, Own)
    ]
    graph = bench.graph(calls(arrays, drawn()), moving)

    def turns() -> None:
        for _ in range(5):
            arguments = drawn()
            assert all(graph.patch(n, given) for n, (_, given) in enumerate(calls(arrays, arguments)))
            graph.launch()
            for kernel, given in calls(twins, arguments):
                kernel(*given)

    bench.run(turns)
    for array, twin in zip(arrays, twins, strict=True):
        assert values_of(array).tobytes() == values_of(twin).tobytes()


# --- memory


def test_temporaries_are_the_graphs_own(bench):
    x, out = bench.array(2), bench.array()

    def kernel(x: Any, out: Any) -> None:
        first = bench.xp.multiply(x, x)
        second = bench.xp.add(first, x)
        bench.xp.add(first, second, out)

    graph = bench.graph([(kernel, (x, out))])
    assert graph.nbytes >= 2 * META.nbytes
    for turn in range(3):
        junk = bench.run(lambda turn=turn: [bench.xp.full(COUNT, turn, np.float32) for _ in range(50)])
        bench.launch(graph)
        assert values_of(out).tolist() == [10.0] * COUNT
        assert all(values_of(each).tolist() == [turn] * COUNT for each in junk)


def test_a_graph_that_is_dropped_while_it_is_launched_keeps_its_memory_until_it_is_done(bench, gpu):
    own, x, y, out = Own(gpu), bench.array(2), bench.array(1), bench.array()

    def kernel(x: Any, out: Any) -> None:
        bench.xp.add(bench.xp.multiply(x, x), x, out)

    graph = bench.graph([(kernel, (x, out)), (own, (out, 2.0, y, out))])
    used = bench.run(bench.device._memory.used_bytes)
    go = gpu.hold("go")

    def launch() -> None:
        gpu.enqueue(current_queue(gpu), lambda: None, go)
        graph.launch()
        graph.drop()
        bench.device._graphs.collect()

    bench.run(launch, after=False)
    junk = bench.run(lambda: [bench.device._take_block(META.nbytes) for _ in range(50)], after=False)
    for block in junk:
        block.mem.block.fill(77)
    assert bench.device._memory.used_bytes() >= used + sum(block.mem.size for block in junk)
    gpu.release("go")
    bench.reports.wait(3)
    bench.device.got_to(0)
    assert values_of(out).tolist() == [13.0] * COUNT
    junk.clear()
    del block
    assert bench.device._memory.used_bytes() < used
    with pytest.raises(RuntimeError, match="the graph was dropped"):
        graph.launch()


def test_a_graph_that_is_forgotten_is_dropped(bench):
    x, out = bench.array(2), bench.array()
    before = bench.device._memory.used_bytes()
    graph = bench.graph([(lambda x, out: bench.xp.add(bench.xp.add(x, x), x, out), (x, out))])
    bench.launch(graph)
    assert bench.device._memory.used_bytes() > before
    del graph
    assert bench.used() == before


def test_graphs_that_are_there_when_the_device_is_closed_go_with_it(bench):
    x, out = bench.array(2), bench.array()
    before = bench.device._memory.used_bytes()
    graph = bench.graph([(lambda x, out: bench.xp.add(bench.xp.add(x, x), x, out), (x, out))])
    bench.launch(graph)
    assert bench.device.close(10)
    assert bench.device._memory.used_bytes() == before
    with pytest.raises(RuntimeError, match="the graph was dropped"):
        graph.launch()
