"""Memory of a CUDA device over the fake runtime: the calls of allocations, out of memory, work areas."""

import threading
from typing import Any

import numpy as np
import pytest

from tensord.interpreter.types.meta import Meta
from tensord.streams.cuda.cuda import MAX_AXES, CudaDevice, _most_of_pool
from tensord.streams.pool import size_class
from tensord.streams.stream import StreamKind
from tensord.streams.threads.events import LAUNCH_CONDITION

from ...each_case import each_case
from ..conftest import WAIT, FakeTask
from ..fake_cuda.gpu import Gpu, IllegalAddress, current_queue
from ..fake_cuda.module import installed

MIB = 1 << 20
META = Meta.of((MIB // 8,), "float64")


@pytest.fixture(autouse=True)
def gpu():
    with installed(Gpu(seed=1, memory=1 << 30)) as fake:
        yield fake


def array_on(device, meta=META):
    return device.bind(device.allocate(meta.nbytes), meta)


def test_what_fits_into_the_reserve_costs_no_call_of_the_driver(gpu, open_device):
    device = open_device("cuda:0", memory="64MiB", cache=0, reserve="8MiB")
    before = gpu.calls.copy()
    buffers = [device.allocate(MIB) for _ in range(8)]
    while buffers:
        device.free(buffers.pop())
    assert gpu.calls == before
    held = [device.allocate(MIB) for _ in range(9)]
    assert None not in held
    assert gpu.calls["malloc"] == before["malloc"] + 1


def test_the_reserve_is_not_more_than_the_memory(gpu, open_device):
    device = open_device("cuda:0", memory="64MiB")
    assert gpu.total - gpu.free[0] == device.limit == 64 * MIB


@each_case("limit", [1 << 30, 1 << 36])
@each_case("size", [4096 + 8, MIB + 8, 64 * MIB + 8])
def test_the_pool_has_room_for_the_ledgers_memory_although_blocks_are_larger(size, limit):
    """Sizes just above those of a class take an eighth more, and CuPy rounds up to 512 bytes."""
    block = -(-size_class(size) // 512) * 512
    assert limit // size * block <= _most_of_pool(limit)


def run(device, reports, body, **fields: Any):
    task = FakeTask(0, body, **fields)
    count = len(reports.ids)
    device.compute[0].submit([task])
    reports.wait(count + 1)
    return task


def test_a_kernel_without_memory_for_a_temporary_gets_what_is_kept_for_reuse(gpu, open_device, reports):
    device = open_device("cuda:0", memory="80MiB", cache="80MiB", reserve=0)
    gpu.free[0] = 75 * MIB
    for buffer in [device.allocate(12 * MIB) for _ in range(5)]:
        device.free(buffer)
    made: list[Any] = []
    task = run(device, reports, lambda: made.append(device.xp.zeros(40 * MIB, np.uint8)))
    assert task.error is None
    assert made[0].nbytes == 40 * MIB
    assert device.pool.take(8) is not None
    device.pool.trim(0)
    assert device.pool.cached == 0


def test_a_kernel_that_finds_no_memory_even_then_fails_and_the_device_works_on(gpu, open_device, reports):
    device = open_device("cuda:0", memory="80MiB", reserve=0)
    gpu.free[0] = 12 * MIB
    errors: list[BaseException] = []

    def body() -> None:
        try:
            device.xp.zeros(40 * MIB, np.uint8)
        except MemoryError as error:
            errors.append(error)

    run(device, reports, body)
    assert "no block of 41,943,040 bytes" in str(errors[0])
    assert device.lost is None
    assert run(device, reports, lambda: device.xp.zeros(8)).error is None


def busy(gpu, device, name="work"):
    """A task that is launched, and not done before `gpu.release(name)`; counted as by the engine."""
    stream = device.compute[0]
    task: Any = FakeTask(1, lambda: gpu.enqueue(current_queue(gpu), lambda: None, gpu.hold(name)))
    stream.queued += 1
    stream.submit([task])
    assert LAUNCH_CONDITION.wait(task, lambda: False)
    return task


@pytest.fixture
def full(gpu, open_device):
    """A device with three free blocks of 8 MiB, on a GPU without other free memory."""
    device = open_device("cuda:0", memory="80MiB", cache=0, reserve=0)
    gpu.free[0] = 24 * MIB
    for buffer in [device.allocate(8 * MIB) for _ in range(3)]:
        device.free(buffer)
    return device


def test_an_allocation_that_needs_blocks_back_does_not_wait_for_the_device(gpu, full, reports):
    task = busy(gpu, full)
    assert full.allocate(16 * MIB) is None
    assert not gpu.blocked[threading.current_thread().name]
    gpu.release("work")
    reports.wait(1)
    full.compute[0].queued -= 1
    assert task.error is None
    assert full.allocate(16 * MIB) is not None
    assert full.lost is None


def test_the_launcher_gives_blocks_back_for_an_allocation_although_the_device_is_never_idle(gpu, full, reports):
    busy(gpu, full)
    assert full.allocate(16 * MIB) is None
    until_blocked(gpu, "launcher")
    gpu.release("work")
    reports.wait(1)
    full.compute[0].submit([FakeTask(2)])
    reports.wait(2)
    assert gpu.free[0] >= 24 * MIB
    assert full.compute[0].queued
    assert full.allocate(16 * MIB) is not None


def test_a_temporary_that_a_kernel_still_uses_is_not_given_to_another_stream(gpu, open_device, reports):
    """Blocks are free for their stream once a kernel is launched; cudaFree need not wait for it."""
    device = open_device("cuda:0", memory="80MiB", cache=0, reserve=0)
    gpu.free[0] = 12 * MIB
    found: list[Any] = []
    go = gpu.hold("kernel")

    def kernel() -> None:
        temporary = device.xp.full(10 * MIB, 7, np.uint8)
        gpu.enqueue(current_queue(gpu), lambda: None, go)
        found.append(temporary.sum())

    def other() -> None:
        device.xp.full(11 * MIB, 1, np.uint8)

    first: Any = FakeTask(0, kernel, quick=False)
    device.compute[0].submit([first])
    assert LAUNCH_CONDITION.wait(first, lambda: False)
    second: Any = FakeTask(1, other, quick=False)
    device.copy_stream(StreamKind.P2P).submit([second])
    until_blocked(gpu, "launcher")
    gpu.release("kernel")
    reports.wait(2)
    assert int(found[0].native) == 7 * 10 * MIB


def until_blocked(gpu, name):
    """Wait until a thread of that name waits for the device."""
    with gpu.changed:
        assert gpu.changed.wait_for(lambda: any(name in thread for thread in gpu.blocked), WAIT)


@pytest.mark.parametrize("streams", [1, 2])
def test_ffts_on_several_streams_share_no_work_area(gpu, open_device, reports, streams):
    """cupy issue 8079."""
    device = open_device("cuda:0", memory="64MiB", compute_streams=streams)
    sources = [array_on(device, Meta.of((8,), "complex128")) for _ in range(8)]
    results: dict[int, Any] = {}

    def transform(i: int) -> Any:
        def body() -> None:
            sources[i][...] = i
            results[i] = device.xp.fft.fft(sources[i])

        return body

    ready = gpu.hold("start")

    def start() -> None:
        gpu.enqueue(current_queue(gpu), lambda: None, ready)

    tasks: list[Any] = [FakeTask(i, transform(i)) for i in range(8)]
    for n, stream in enumerate(device.compute):
        stream.submit([FakeTask(100 + n, start), *tasks[n::streams]])
    assert all(LAUNCH_CONDITION.wait(task, lambda: False) for task in tasks)
    gpu.release("start")
    reports.wait(8 + streams)
    assert all(results[i].native[0] == 8 * i for i in range(8))


def test_an_array_of_more_axes_than_cupy_has_is_refused_in_words(open_device):
    device = open_device("cuda:0", memory="1MiB")
    meta = Meta.of((1,) * (MAX_AXES + 1), "float64")
    buffer = device.allocate(meta.nbytes)
    with pytest.raises(ValueError, match="33 axes, but CuPy has 32"):
        device.bind(buffer, meta)
    with pytest.raises(ValueError, match="33 axes"):
        device.bind_view(buffer, meta, 0, meta.strides)
    device.free(buffer)


@pytest.mark.parametrize("ordinal", [0, 1])
def test_closing_gives_all_memory_back_to_the_driver(gpu, open_device, ordinal):
    device = open_device(f"cuda:{ordinal}", memory="64MiB")
    device.free(device.allocate(MIB))
    device.host_array(META)
    assert device.close(1.0)
    assert gpu.free[ordinal] == gpu.total
    assert gpu.calls["freeHost"] == gpu.calls["hostAlloc"]


def test_a_lost_device_can_be_closed(gpu, open_device, reports):
    device: CudaDevice = open_device("cuda:0", memory="64MiB")

    def illegal() -> None:
        raise IllegalAddress

    task: Any = FakeTask(0, lambda: gpu.enqueue(current_queue(gpu), illegal))
    device.copy_stream(StreamKind.H2D).submit([task])
    reports.wait(1)
    assert device.lost is not None
    assert device.close(1.0)


def test_results_beyond_the_limit_of_pinned_memory_are_pageable(open_device):
    device = open_device("cuda:0", memory="1MiB", pinned="1MiB")
    held = [device.host_array(Meta.of((MIB // 16,), "float64")) for _ in range(4)]
    assert device.pinned.total == MIB // 2  # the other half is for staging
    assert all(array.nbytes == MIB // 2 for array in held)
