"""Products of matrices in graphs."""

from __future__ import annotations

import importlib
import re
import threading
from typing import Any

import numpy as np
import pytest

from tensord.interpreter.types.meta import Meta
from tensord.streams.cuda.products import CUBLAS_MODULE, FUNCTIONS, as_compute_type, workspace_of

from .graph_bench import SQUARE, values_of

MIB = 1 << 20


def test_a_product_has_the_bits_that_it_has_outside_of_a_graph(bench):
    rng = np.random.default_rng(0)

    def check(x: Any, y: Any, shape: Any) -> None:
        meta = Meta.of(shape, x.dtype)
        listed, captured = bench.array(0, meta), bench.array(0, meta)
        bench.run(lambda: bench.xp.matmul(x, y, listed))
        graph = bench.graph([(bench.xp.matmul, (x, y, captured))])
        bench.launch(graph)
        assert values_of(captured).tobytes() == values_of(listed).tobytes()
        graph.drop()

    for dtype in ("float32", "float64", "complex64", "complex128"):
        x = bench.array(rng.random((5, 7)), Meta.of((5, 7), dtype))
        y = bench.array(rng.random((7, 3)), Meta.of((7, 3), dtype))
        check(x, y, (5, 3))
        check(y.T, x.T, (3, 5))
        check(bench.array(rng.random((7, 5)), Meta.of((7, 5), dtype)).T, y, (5, 3))
        stacks = [bench.array(rng.random(shape), Meta.of(shape, dtype)) for shape in ((2, 3, 4, 5), (2, 3, 5, 6))]
        check(stacks[0], stacks[1], (2, 3, 4, 6))
        check(stacks[0], stacks[1][:1], (2, 3, 4, 6))
        check(stacks[0][..., ::-1], stacks[1], (2, 3, 4, 6))
        check(x[::2], y, (3, 3))
        check(x, y[:, 0], (5,))
        check(x[0], y, (3,))


def test_a_product_that_another_thread_has_made_is_captured(bench):
    x, out = bench.array(np.eye(8), SQUARE), bench.array(0, SQUARE)
    before = bench.device.enter()
    bench.xp.matmul(x, x, out)
    bench.device.leave(before)
    bench.launch(bench.graph([(bench.xp.matmul, (x, x, out))]))
    assert values_of(out).tolist() == np.eye(8).tolist()


def test_other_threads_make_products_by_cupy_meanwhile(bench):
    x, out, other = (bench.array(np.eye(8), SQUARE) for _ in range(3))
    bench.run(lambda: bench.xp.matmul(x, x, out))
    module = bench.xp.matmul.library
    before, seen = module.gemmEx, list[BaseException]()

    def during(*arrays: Any) -> None:
        def elsewhere() -> None:
            try:
                module.gemmEx()
            except AssertionError as error:  # the fake's own function: this thread's stream does not capture
                seen.append(error)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        bench.xp.matmul(*arrays)

    bench.graph([(bench.xp.matmul, (x, x, other)), (during, (x, x, out))])
    assert len(seen) == 1
    assert module.gemmEx is before


def test_the_workspace_of_products_is_one_for_all_graphs_and_goes_with_the_device(bench):
    x, out = bench.array(np.eye(8), SQUARE), bench.array(0, SQUARE)
    bench.run(lambda: bench.xp.matmul(x, x, out))
    before = bench.used()
    graphs = [bench.graph([(bench.xp.matmul, (x, x, out))]) for _ in range(3)]
    assert bench.used() == before + 32 * MIB
    for graph in graphs:
        bench.launch(graph)
    assert bench.device.close(10)
    assert bench.device._memory.used_bytes() == before


def test_cupys_functions_take_what_the_librarys_do():
    """Runs with CuPy's wheel and cuBLAS's, which can be inspected without a GPU."""
    try:
        module = importlib.import_module(CUBLAS_MODULE)
    except ImportError:
        pytest.skip("CuPy or cuBLAS is not installed")
    kinds = {"intptr_t": "h", "int": "i", "size_t": "p", "long long": "l"}
    for name, (_, expected) in FUNCTIONS.items():
        if hasattr(module, name):
            taken = re.match(r"\w+\((.*)\)", getattr(module, name).__doc__)
            assert taken
            declared = [each.strip().rpartition(" ") for each in taken[1].split(",")]
            found = "".join("c" if each == "computeType" else kinds[kind] for kind, _, each in declared)
            assert found == expected.replace(" ", ""), name


def test_dtypes_in_the_place_of_compute_types_are_read_as_cublas_does():
    assert [as_compute_type(each) for each in (0, 1, 2, 4, 5, 68, 77)] == [68, 70, 64, 68, 70, 68, 77]


def test_the_workspace_has_the_size_of_cublass_own():
    assert [workspace_of(each) // MIB for each in ("70", "80", "89", "90", "100", "120")] == [4, 4, 4, 32, 32, 12]
