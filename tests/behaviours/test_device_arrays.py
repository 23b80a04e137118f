"""Values as arrays of CuPy, and arrays of CuPy as values, in this process: over the fake of CUDA's runtime."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.interpreter.errors import KernelError

from ..each_case import each_case
from ..streams.fake_cuda.gpu import Gpu, IllegalAddress
from ..streams.fake_cuda.module import installed
from .borrowed import given_back
from .looking_inside import assert_sound, device_of, until

DEVICES: list[Any] = ["cpu:0", {"name": "cuda:0", "memory": "64MiB", "cache": "8MiB"}, "sim:0"]
NUMBERS = np.arange(1024.0)


@pytest.fixture(params=range(2), autouse=True)
def gpu(request: pytest.FixtureRequest) -> Iterator[Gpu]:
    with installed(Gpu(seed=request.param, memory=1 << 30)) as fake:
        yield fake


@pytest.fixture
def session() -> Iterator[Any]:
    with td.connect("local", devices=DEVICES) as opened:
        warm(opened)
        yield opened
        if not opened.closed:
            given_back()
            assert_sound(opened)
            assert opened.trace().verify() == []


@pytest.fixture
def cupy() -> Any:
    import cupy

    return cupy


def warm(session: Any) -> None:
    """The first calls take the long way: their kernels are compiled."""
    x = session.asarray(NUMBERS, device="cuda:0")
    for _ in range(2):
        y = x + x
        y += 1.0
        y.numpy()


def exports(session: Any) -> int:
    return len(session._core.transport.machine.engine.residency.releasing.exports)


def hold(gpu: Gpu, session: Any, name: str = "compute") -> None:
    """Keep the compute stream from working until `gpu.release(name)`."""
    gpu.enqueue(device_of(session, "cuda:0").compute[0].raw.queue, lambda: None, gpu.hold(name))


def test_a_value_is_read_where_it_lies_and_no_later_write_changes_it(session: Any) -> None:
    x = session.asarray(NUMBERS, device="cuda:0").wait()
    before = device_of(session, "cuda:0").allocated
    array = x.cupy()
    assert (array.shape, array.dtype, array.device.id) == ((1024,), np.float64, 0)
    assert device_of(session, "cuda:0").allocated == before
    x += 1.0
    del x
    session.sync()
    for n in range(8):
        session.asarray(NUMBERS * n, device="cuda:0").wait()
    assert (array.get() == NUMBERS).all()


def test_what_was_just_launched_is_lent_without_a_wait_and_the_readers_stream_waits(gpu: Gpu, session: Any) -> None:
    import cupy

    x = session.asarray(NUMBERS, device="cuda:0").wait()
    stream = cupy.cuda.Stream(non_blocking=True)
    hold(gpu, session)
    y = x + x
    with stream:
        array = y.cupy()  # comes back although nothing is computed yet
        tripled = array * 3
        y += 1.0
        gpu.release("compute")
        assert (tripled.get() == NUMBERS * 6).all()
    assert (y.numpy() == NUMBERS * 2 + 1).all()


@each_case("index", [np.s_[3:9], np.s_[::2], np.s_[::-3], np.s_[5:5]])
def test_a_part_of_a_tensor_is_an_array_with_its_strides(session: Any, index: Any) -> None:
    x = session.asarray(NUMBERS.reshape(32, 32), device="cuda:0")
    expected = NUMBERS.reshape(32, 32)[:, index]
    array = x[:, index].cupy()
    assert array.shape == expected.shape
    assert (array.get() == expected).all()


def test_a_value_whose_shape_data_decide_is_lent(session: Any) -> None:
    x = session.asarray(NUMBERS, device="cuda:0")
    assert (x[x > 1000].cupy().get() == NUMBERS[1001:]).all()


def test_a_value_that_moves_is_lent_at_home(session: Any) -> None:
    x = session.asarray(NUMBERS, device="cpu:0").to_device("cuda:0")
    assert (x.cupy().get() == NUMBERS).all()


def test_memory_is_free_again_only_when_the_gpu_has_done_what_reads_it(gpu: Gpu, session: Any) -> None:
    import cupy

    x = session.asarray(NUMBERS, device="cuda:0").wait()
    array = x.cupy()
    mine = cupy.cuda.Stream(non_blocking=True)
    gpu.enqueue(mine.queue, lambda: None, gpu.hold("reader"))
    with mine:
        doubled = array + array
    del x, array
    gc.collect()
    session.sync()
    for n in range(8):
        session.asarray(NUMBERS * n, device="cuda:0").wait()
    assert exports(session) == 1
    gpu.release("reader")
    with mine:
        assert (doubled.get() == NUMBERS * 2).all()
    given_back()
    until(session, lambda: exports(session) == 0)


def test_an_array_outlives_its_session() -> None:
    with td.connect("local", devices=DEVICES) as session:
        array = session.asarray(NUMBERS, device="cuda:0").cupy()[10:]
    gc.collect()
    assert (array.get() == NUMBERS[10:]).all()
    del array
    given_back()


def test_dlpack_hands_a_value_over_where_it_lies_to_the_consumers_stream(gpu: Gpu, session: Any, cupy: Any) -> None:
    x = session.asarray(NUMBERS, device="cuda:0").wait()
    assert x.__dlpack_device__() == (2, 0)
    assert session.asarray(NUMBERS).__dlpack_device__() == (1, 0)
    hold(gpu, session)
    y, mine = x + x, cupy.cuda.Stream(non_blocking=True)
    capsule = y.__dlpack__(stream=mine.ptr, max_version=(1, 0))
    with mine:
        gpu.release("compute")
        assert (capsule.array.get() == NUMBERS * 2).all()
    with mine:
        assert (cupy.from_dlpack(y).get() == NUMBERS * 2).all()
    for stream in (None, 1, -1):
        assert (y.__dlpack__(stream=stream).array.get() == NUMBERS * 2).all()


def test_dlpack_gives_the_value_in_host_memory_to_who_asks_for_that(session: Any) -> None:
    x = session.asarray(NUMBERS, device="cuda:0")
    assert (np.from_dlpack(x, device="cpu") == NUMBERS).all()
    with pytest.raises(BufferError, match=r"\(1, 0\), or \(2, 0\), where it lies"):
        x.__dlpack__(dl_device=(2, 1))
    with pytest.raises(BufferError, match="stream must be None or the number of a stream"):
        x.__dlpack__(stream="mine")


def test_a_copy_by_dlpack_is_the_consumers_own(session: Any) -> None:
    x = session.asarray(NUMBERS, device="cuda:0")
    array = x.__dlpack__(copy=True).array
    array[:] = 0.0
    assert (x.numpy() == NUMBERS).all()


@each_case("device", ["cpu:0", "sim:0"])
def test_what_is_on_no_gpu_says_how_its_value_is_had(session: Any, device: str) -> None:
    with pytest.raises(ValueError, match=f"the tensor is on {device}, whose memory cannot be read here"):
        session.asarray(NUMBERS, device=device).cupy()


def test_a_tensor_that_failed_raises_its_error_and_nothing_stays_lent(session: Any) -> None:
    x = session.asarray(np.zeros((2, 2)), device="cuda:0")
    with pytest.raises(KernelError, match=r"[Ss]ingular"):
        session.xp.linalg.inv(x).cupy()
    until(session, lambda: exports(session) == 0)


def test_no_array_is_had_of_a_lost_device(gpu: Gpu, session: Any) -> None:
    def kernel() -> None:
        raise IllegalAddress

    x = session.asarray(NUMBERS, device="cuda:0").wait()
    gpu.enqueue(device_of(session, "cuda:0").compute[0].raw.queue, kernel)
    with pytest.raises(KernelError, match="lost"):
        x.cupy().get()
    session.close()


# -- the other way ---------------------------------------------------------------------------------------------------


def test_an_array_of_cupy_becomes_a_tensor_by_one_copy_and_without_the_host(gpu: Gpu, session: Any, cupy: Any) -> None:
    array, mine = cupy.array(NUMBERS), cupy.cuda.Stream(non_blocking=True)
    gpu.calls.clear()
    gpu.enqueue(mine.queue, lambda: None, gpu.hold("producer"))
    with mine:
        array += 1.0
        launched = gpu.calls["launchKernel"]
        x = session.asarray(array, device="cuda:0")
        assert gpu.calls["launchKernel"] == launched + 1
        array[:] = 0.0  # in order: behind the copy
    y = x * 2.0
    session.flush()
    assert not y.is_ready()
    gpu.release("producer")
    assert (y.numpy() == (NUMBERS + 1) * 2).all()
    assert not gpu.calls["memcpyAsync"] - 1  # the value that was read
    assert not [one for one in session.trace().records if one.op.startswith("h2d")]


@each_case("form", ["strided", "reversed", "transposed", "of rank 0", "empty"])
def test_any_layout_is_taken(session: Any, cupy: Any, form: str) -> None:
    whole = NUMBERS.reshape(32, 32)
    cut = {
        "strided": lambda x: x[::3, 1::2],
        "reversed": lambda x: x[::-1],
        "transposed": lambda x: x.T,
        "of rank 0": lambda x: x[3, 4:5].reshape(()),
        "empty": lambda x: x[:, 5:5],
    }[form]
    found = session.asarray(cut(cupy.array(whole)), device="cuda:0")
    assert found.shape == cut(whole).shape
    assert (found.numpy() == cut(whole)).all()


def test_dtypes_are_kept_or_converted_by_the_machine(session: Any, cupy: Any) -> None:
    array = cupy.array(NUMBERS.astype("int16"))
    assert session.asarray(array, device="cuda:0").dtype == np.int16
    found = session.asarray(array, device="cuda:0", dtype="float32")
    assert (found.dtype, found.numpy()[7]) == (np.float32, 7.0)
    with pytest.raises(TypeError, match="take the real part first"):
        session.asarray(cupy.array(NUMBERS * 1j), device="cuda:0", dtype="float64")


@each_case("device", ["cpu:0", "sim:0"])
def test_an_array_goes_through_the_host_to_other_devices(session: Any, cupy: Any, device: str) -> None:
    array = cupy.array(NUMBERS)
    assert (session.asarray(array, device=device).numpy() == NUMBERS).all()
    assert (session.xp.from_dlpack(array, device=device).numpy() == NUMBERS).all()


class Foreign:
    """Another library's array on the GPU: it speaks DLPack, and nothing else."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.streams: list[Any] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)

    def __dlpack__(self, *, stream: Any = None, **options: Any) -> Any:
        self.streams.append(stream)
        return self.array.__dlpack__(stream=stream, **options)


def test_any_producer_on_the_gpu_is_taken_in_the_order_of_its_stream(gpu: Gpu, session: Any, cupy: Any) -> None:
    theirs, mine = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
    array = cupy.array(NUMBERS)
    gpu.enqueue(theirs.queue, lambda: None, gpu.hold("theirs"))
    with theirs:
        array += 1.0
        foreign = Foreign(array)
        # their library orders the stream that it is told behind its own
        found = session.asarray(foreign, device="cuda:0")
    with mine:
        again = session.xp.from_dlpack(Foreign(cupy.array(NUMBERS)), device="cuda:0")
    gpu.release("theirs")
    assert foreign.streams == [theirs.ptr]
    assert (found.numpy() == NUMBERS + 1).all()
    assert (again.numpy() == NUMBERS).all()


def test_the_machine_may_write_over_what_it_has_been_given_and_frees_it_when_its_gpu_is_done(
    gpu: Gpu, session: Any, cupy: Any
) -> None:
    device = device_of(session, "cuda:0")
    array = cupy.array(NUMBERS)
    session.asarray(array, device="cuda:0").wait()
    session.sync()
    before = device.allocated
    x = session.asarray(array, device="cuda:0").wait()
    assert device.allocated == before + NUMBERS.nbytes
    hold(gpu, session)
    y = x * 2.0
    x += 1.0
    z = x * 3.0
    del x
    session.flush()
    for _ in range(4):
        cupy.array(NUMBERS)  # of the pool to which the memory goes back
    gpu.release("compute")
    assert (y.numpy() == NUMBERS * 2).all()
    assert (z.numpy() == (NUMBERS + 1) * 3).all()
    assert (array.get() == NUMBERS).all()


def test_many_threads_lend_and_give(session: Any, cupy: Any) -> None:
    wrong: list[Any] = []

    def work(seed: int) -> None:
        stream = cupy.cuda.Stream(non_blocking=True)
        for n in range(6):
            with stream:
                x = session.asarray(cupy.array(NUMBERS + seed), device="cuda:0")
                y = x + float(n)
                found = y.cupy() * 2
                y += 1.0
                if not (found.get() == (NUMBERS + seed + n) * 2).all():
                    wrong.append((seed, n))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_routine_takes_an_array_of_the_gpu_as_a_constant(session: Any, cupy: Any) -> None:
    array = cupy.array(NUMBERS)

    @session.routine(constants=["array"])
    def scaled(x: Any) -> Any:
        return x * session.asarray(array, device="cuda:0")

    assert (scaled(session.asarray(NUMBERS, device="cuda:0")).numpy() == NUMBERS * NUMBERS).all()
