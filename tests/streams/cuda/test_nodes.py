"""Launch arguments that are another launch's: of our own kernels, of libraries' calls, and those that move."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensord.interpreter.types.meta import Meta
from tensord.streams.graph import Moving

from ...each_case import each_case
from ..fake_cuda.gpu import current_queue
from .graph_bench import COUNT, Own, values_of


def test_a_kernel_of_our_own_takes_other_arrays_and_numbers(bench):
    own = Own(bench.gpu)
    x, y, out = bench.array(2), bench.array(1), bench.array()
    graph = bench.graph([(own, (x, 3.0, y, out))])
    x2, y2, out2 = bench.array(5), bench.array(-1), bench.array()
    bench.launch(graph)
    assert graph.patch(0, (x2, 0.1, y2, out2))
    bench.launch(graph)
    assert values_of(out).tolist() == [7.0] * COUNT
    assert values_of(out2).tobytes() == (np.full(COUNT, 5, np.float32) * np.float32(0.1) - 1).tobytes()


def test_what_was_launched_before_a_patch_keeps_its_arguments(bench):
    own, out, out2 = Own(bench.gpu), bench.array(), bench.array()
    x, y = bench.array(2), bench.array(1)
    graph = bench.graph([(own, (x, 3.0, y, out))])
    go = bench.gpu.hold("go")

    def twice() -> None:
        bench.gpu.enqueue(current_queue(bench.gpu), lambda: None, go)
        graph.launch()
        assert graph.patch(0, (x, 4.0, y, out2))
        graph.launch()
        bench.gpu.release("go")

    bench.run(twice)
    assert (values_of(out)[0], values_of(out2)[0]) == (7.0, 9.0)


def test_a_kernel_of_our_own_that_would_leave_operands_to_a_library_is_not_patched(bench):
    own, out = Own(bench.gpu), bench.array()
    x, y = bench.array(2), bench.array(1)
    graph = bench.graph([(own, (x, 3.0, y, out))])
    assert not graph.patch(0, (bench.array(9, Meta.of((2 * COUNT,), "float32"))[::2], 3.0, y, out))
    bench.launch(graph)
    assert values_of(out).tolist() == [7.0] * COUNT


def test_operands_that_are_poisoned_are_not_patched(bench):
    own, x, out = Own(bench.gpu), bench.array(2), bench.array()
    graph = bench.graph([(own, (x, 3.0, x, out)), (bench.xp.add, (x, x, out))])
    assert not graph.patch(0, (None, 3.0, x, out))
    assert not graph.patch(1, (x, None, out))


@each_case(
    ("argument", "taken"),
    [
        ("the same", True),
        ("another one on the same memory", True),
        ("other memory", False),
        ("the same memory, backwards", False),
        ("the same memory in another shape", False),
    ],
)
def test_a_call_of_a_library_keeps_its_arrays(bench, argument, taken):
    x, out = bench.array(2), bench.array()
    found = {
        "the same": x,
        "another one on the same memory": bench.xp.ndarray(x.shape, x.dtype, memptr=x.data),
        "other memory": bench.array(),
        "the same memory, backwards": x[::-1],
        "the same memory in another shape": x.reshape(8, 8),
    }
    graph = bench.graph([(bench.xp.add, (x, 1.0, out))])
    assert graph.patch(0, (found[argument], 1.0, out)) is taken


@each_case(("old", "new", "taken"), [(1.0, 1.0, True), (1.0, 2.0, False), (0.0, -0.0, False), (1.0, 1, False)])
def test_a_call_of_a_library_keeps_its_numbers_to_the_bit(bench, old, new, taken):
    x, out = bench.array(2), bench.array()
    graph = bench.graph([(bench.xp.add, (x, old, out))])
    assert graph.patch(0, (x, new, out)) is taken


def test_arguments_of_a_library_that_move_are_copied(bench):
    def accumulate(x: Any, total: Any, ones: Any) -> None:
        bench.xp.add(total, x, total)
        bench.xp.copyto(ones[:4], x[:4])  # the rest of it stays

    first, second = ([bench.array(value) for value in values] for values in ((2, 10, 1), (3, 20, 7)))
    moving = [Moving(0, 0), Moving(0, 1, written=True), Moving(0, 2, written=True)]
    graph = bench.graph([(accumulate, first)], moving)
    assert graph.copies == 5
    bench.launch(graph)
    assert graph.patch(0, second)
    bench.launch(graph)
    bench.launch(graph)
    assert graph.patch(0, first)
    bench.launch(graph)
    assert [values_of(array)[0] for array in first] == [2, 14, 2]
    assert [values_of(array)[0] for array in second] == [3, 26, 3]
    assert [values_of(array)[-1] for array in (first[2], second[2])] == [1, 7]


def test_a_result_that_nobody_reads_before_is_copied_from_there_alone(bench):
    x, y, out, out2 = bench.array(2), bench.array(3), bench.array(), bench.array()
    graph = bench.graph([(bench.xp.multiply, (x, y, out))], [Moving(0, 2, read=False, written=True)])
    assert graph.copies == 1
    assert graph.patch(0, (x, y, out2))
    bench.launch(graph)
    assert (values_of(out)[0], values_of(out2)[0]) == (0, 6)


def test_a_copy_has_the_alignment_of_its_argument_and_takes_no_other(bench):
    long = Meta.of((4 * COUNT,), "float32")
    whole, other, out = bench.array(range(4 * COUNT), long), bench.array(7, long), bench.array()
    seen: list[int] = []

    def kernel(x: Any, out: Any) -> None:
        seen.append(x.data.ptr % 256)
        bench.xp.add(x, x, out)

    parts = [
        bench.run(lambda a=array, n=start: a[n : n + COUNT]) for array, start in [(whole, 3), (other, 3), (other, 4)]
    ]
    graph = bench.graph([(kernel, (parts[0], out))], [Moving(0, 0)])
    assert seen == [parts[0].data.ptr % 256]
    assert not graph.patch(0, (parts[2], out))
    assert graph.patch(0, (parts[1], out))
    bench.launch(graph)
    assert values_of(out).tolist() == [14.0] * COUNT


def test_an_argument_with_gaps_is_not_copied(bench):
    x, out = bench.array(range(2 * COUNT), Meta.of((2 * COUNT,), "float32")), bench.array()
    every, other = bench.run(lambda: (x[::2], x[1::2]))
    graph = bench.graph([(bench.xp.add, (every, 1.0, out))], [Moving(0, 0)])
    assert graph.copies == 0
    assert graph.patch(0, (every, 1.0, out))
    assert not graph.patch(0, (other, 1.0, out))
