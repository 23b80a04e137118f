"""Calls that can be captured, and refused ones, with the state after a failed capture."""

from __future__ import annotations

import gc
import sys
import threading
from typing import Any

import numpy as np
import pytest

from tensord.interpreter.ops.positions import in_bounds
from tensord.interpreter.types.meta import Meta

from ...each_case import each_case
from ..fake_cuda.gpu import IllegalAddress, current_queue
from ..fake_cuda.graphs import HostCall
from .graph_bench import COUNT, META, Bench, Own, values_of


def synchronizes(bench):
    return lambda x, out: bench.xp.add(x, float(x.sum()), out)


def fails(_bench):
    def kernel(*_: Any) -> None:
        raise ValueError("a kernel of CuPy's refuses this")

    return kernel


def allocates(bench):
    return lambda *_: bench.xp.cuda.runtime.malloc(64)


def calls_the_host(bench):
    return lambda *_: bench.gpu.enqueue(current_queue(bench.gpu), HostCall())


def reads_the_host(bench):
    pinned = bench.device.host_array(META)

    def kernel(_x: Any, out: Any) -> None:
        runtime = bench.xp.cuda.runtime
        stream = bench.xp.cuda.get_current_stream()
        runtime.memcpyAsync(out.data.ptr, pinned.ctypes.data, 64, runtime.memcpyHostToDevice, stream.ptr)

    return kernel


def transforms(bench):
    return lambda x, out: out.__setitem__(slice(None), bench.xp.fft.fft(x).real)


def solves(bench):
    return lambda x, _: bench.xp.linalg.inv(x.reshape(8, 8))


def sorts(bench):
    return lambda x, _: bench.xp.sort(x)


def asks_an_event(bench):
    def kernel(*_: Any) -> None:
        event = bench.xp.cuda.Event(block=True)
        event.recorded = bench.gpu.record(bench.device.compute[0].raw.queue)
        bench.xp.cuda.runtime.eventQuery(event.ptr)

    return kernel


def loads_a_module(bench):
    return lambda *_: bench.xp.RawKernel("source", "name")


def multiplies_otherwise(bench):
    half = bench.array(1, Meta.of((8, 8), "float16"))  # cuBLAS's for float16 are not in the fake
    return lambda *_: bench.xp.matmul(half, half)


def takes_all_memory(bench):
    return lambda *_: bench.xp.zeros(1 << 29, np.uint8)


REFUSED = [
    (synchronizes, "not permitted when stream is capturing"),
    (fails, "ValueError: a kernel of CuPy's refuses this"),
    (allocates, "not permitted when stream is capturing"),
    (calls_the_host, "a node of the kind HOST cannot be launched with a graph"),
    (reads_the_host, "a copy from or to the host's memory cannot be launched with a graph"),
    (transforms, "the memory of an FFT's plan is not the graph's"),
    (solves, "not permitted when stream is capturing"),
    (sorts, "not permitted when stream is capturing"),
    (asks_an_event, "not permitted when stream is capturing"),
    (loads_a_module, "not permitted when stream is capturing"),
    (multiplies_otherwise, "NotImplementedError: calling cuBLAS API during stream capture"),
    (takes_all_memory, "Out of memory"),
]


@each_case(("kind", "reason"), REFUSED, ids=lambda case: case[0].__name__)
def test_what_cannot_be_captured_is_refused_and_leaves_nothing_behind(bench, kind, reason):
    own, x, y, out = Own(bench.gpu), bench.array(2), bench.array(1), bench.array()
    add = (lambda x, out: bench.xp.add(bench.xp.add(x, x), x, out)), (x, out)
    bench.run(lambda: bench.xp.matmul(x.reshape(8, 8), x.reshape(8, 8)))
    before = bench.used()
    stream = bench.device._graphs._stream
    refused = bench.refused([add, (kind(bench), (x, out)), add])
    assert reason in refused.reason
    assert refused.call == 1
    assert bench.used() == before
    assert bench.device._graphs._stream is not stream
    assert bench.device.lost is None
    graph = bench.graph([add, (own, (x, 3.0, y, out))])
    bench.launch(graph)
    assert values_of(out).tolist() == [7.0] * COUNT
    assert bench.run(lambda: float(x.sum())) == 2 * COUNT


def test_calls_that_launch_nothing_have_no_graph(bench):
    assert bench.refused([]).reason == "nothing is launched"


def test_without_bindings_of_the_driver_there_are_no_graphs_and_the_reason_is_said(
    gpu, open_device, reports, monkeypatch
):
    monkeypatch.delitem(sys.modules, "cuda.bindings.driver")
    monkeypatch.delattr(sys.modules["cuda.bindings"], "driver")
    bench = Bench(gpu, open_device("cuda:0", memory="64MiB"), reports)
    x = bench.array()
    refused = bench.refused([(bench.xp.add, (x, x, x))])
    assert "cuda-bindings cannot be imported" in refused.reason
    assert "install tensord[cuda12] or tensord[cuda13]" in refused.reason


@each_case(
    ("options", "reason"),
    [({"launch_blocking": True}, "completes each launch"), ({"compute_streams": 2}, "several compute streams")],
)
def test_devices_that_do_not_launch_in_one_order_have_no_graphs(gpu, open_device, reports, options, reason):
    bench = Bench(gpu, open_device("cuda:0", memory="64MiB", **options), reports)
    x = bench.array()
    assert reason in bench.refused([(bench.xp.add, (x, x, x))]).reason


def test_other_devices_make_no_graphs(open_device):
    assert open_device("sim:0").graph_of([]).reason == "sim:0 makes no graphs"


def test_a_device_that_is_lost_is_no_reason_to_refuse(bench):
    def wild() -> None:
        raise IllegalAddress

    def body() -> Any:
        bench.gpu.enqueue(current_queue(bench.gpu), wild)
        while bench.gpu.step():
            pass
        return bench.device.graph_of([(bench.xp.add, (x, x, x))])

    x = bench.array()
    with pytest.raises(bench.xp.cuda.runtime.CUDARuntimeError, match="illegal memory access"):
        bench.run(body)


def test_a_place_where_no_memory_is_any_more_loses_the_device(bench):
    """The memory of a graph must still exist: addresses are baked in."""
    own, y, out = Own(bench.gpu), bench.array(1), bench.array()
    block = bench.run(lambda: bench.xp.cuda.MemoryPointer(bench.xp.cuda.Memory(1024), 0))
    graph = bench.graph([(own, (bench.xp.ndarray((COUNT,), np.float32, memptr=block), 1.0, y, out))])
    del block
    gc.collect()
    bench.launch(graph)
    assert bench.device.lost is not None


def test_blocks_that_the_driver_has_to_give_are_allocated_within_a_capture(gpu, open_device, reports):
    bench = Bench(gpu, open_device("cuda:0", memory="64MiB", reserve=0), reports)
    x, out = bench.array(2), bench.array()
    before = gpu.calls["malloc"]
    graph = bench.graph([(lambda x, out: bench.xp.add(bench.xp.add(x, x), x, out), (x, out))])
    assert gpu.calls["malloc"] > before
    bench.launch(graph)
    assert values_of(out)[0] == 6


def test_another_thread_may_wait_and_allocate_while_one_captures(bench):
    x, out = bench.array(2), bench.array()

    def kernel(x: Any, out: Any) -> None:
        def elsewhere() -> None:
            bench.device.compute[0].raw.synchronize()
            found.append(bench.xp.cuda.runtime.malloc(64))

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        bench.xp.add(x, x, out)

    found: list[int] = []
    bench.graph([(kernel, (x, out))])
    assert found


def test_what_a_call_finds_out_about_its_data_is_there_after_each_launch(bench):
    positions = bench.array(3, Meta.of((4,), "int64"))
    x, out = bench.array(range(COUNT)), bench.array(0, Meta.of((4,), "float32"))

    def gather(x: Any, positions: Any, out: Any) -> None:
        bench.xp.take(x, in_bounds(bench.xp, positions, 0, COUNT, "{first} is out"), axis=0, out=out)

    graph = bench.graph([(bench.xp.negative, (x, x)), (gather, (x, positions, out))])
    ((call, (least, most, judge)),) = graph.checks
    assert call == 1
    bench.launch(graph)
    judge(values_of(least), values_of(most))
    assert values_of(out).tolist() == [-3.0] * 4
    positions.native[2] = COUNT
    bench.launch(graph)
    with pytest.raises(IndexError, match="64 is out"):
        judge(values_of(least), values_of(most))
