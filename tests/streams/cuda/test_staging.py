"""Large copies of pageable memory, piece by piece, over the fake runtime."""

from functools import cache
from typing import Any

import numpy as np
import pytest

from tensord.interpreter.types.meta import Meta
from tensord.streams.cuda.pinned import is_pinned
from tensord.streams.cuda.staging import BLOCKS, PIECE, pieces
from tensord.streams.stream import StreamKind

from ...each_case import each_case
from ..conftest import FakeTask
from ..fake_cuda.gpu import Gpu
from ..fake_cuda.module import installed

LARGE = Meta.of((3 * PIECE // 16, 5), "float32")  # 3.75 pieces


@pytest.fixture(autouse=True, params=range(2))
def gpu(request):
    with installed(Gpu(seed=request.param)) as fake:
        yield fake


def run(device, reports, kind, body):
    task: Any = FakeTask(0, body, quick=False)
    count = len(reports.ids)
    device.copy_stream(kind).submit([task])
    reports.wait(count + 1)
    assert device.lost is None


def there_and_back(device, reports, source, result):
    meta = Meta.of(source.shape, source.dtype)
    array = device.bind(device.allocate(meta.nbytes), meta)
    run(device, reports, StreamKind.H2D, lambda: device.copy_in(array, source))
    run(device, reports, StreamKind.D2H, lambda: device.copy_out(array, result))


@cache
def numbers(meta):
    """Tests only read them."""
    return np.random.default_rng(0).random(meta.shape, "float32")


def test_a_large_array_takes_two_pinned_pieces_whatever_its_size(gpu, open_device, reports):
    device = open_device("cuda:0", memory="64MiB", reserve=0)
    source, result = numbers(LARGE), np.zeros(LARGE.shape, "float32")
    there_and_back(device, reports, source, result)
    assert (result == source).all()
    assert device.pinned.total + device._staged.total <= 2 * BLOCKS * PIECE  # in both directions
    assert gpu.calls["memcpyAsync"] == 2 * 4


@pytest.mark.parametrize("seen", [lambda a: a[::2], lambda a: a.T, lambda a: a[:, 1:4], lambda a: a[:, ::-1]])
def test_arrays_that_are_not_packed_are_copied_in_the_order_of_their_elements(open_device, reports, seen):
    device = open_device("cuda:0", memory="64MiB", reserve=0)
    source, result = seen(numbers(LARGE)), seen(np.zeros(LARGE.shape, "float32"))
    there_and_back(device, reports, source, result)
    assert (result == source).all()


def test_without_pinned_memory_the_driver_stages(gpu, open_device, reports):
    device = open_device("cuda:0", memory="64MiB", reserve=0, pinned=0)
    source, result = numbers(LARGE).T, np.zeros(LARGE.shape, "float32").T
    there_and_back(device, reports, source, result)
    assert (result == source).all()
    assert gpu.calls["memcpyAsync"] == 2


def test_a_large_pinned_array_is_copied_as_it_is(gpu, open_device, reports):
    device = open_device("cuda:0", memory="64MiB", reserve=0, pinned="64MiB")
    source, result = device.host_array(LARGE), device.host_array(LARGE)
    source[...] = numbers(LARGE)
    there_and_back(device, reports, source, result)
    assert (result == source).all()
    assert gpu.calls["memcpyAsync"] == 2


@each_case("shape", [(7,), (1, 1, 100), (3, 50), (100, 1), (2, 3, 4, 5), (0, 5)])
def test_pieces_are_the_array_in_the_order_of_its_elements(shape):
    array = np.arange(np.prod(shape), dtype="int64").reshape(shape)
    parts = list(pieces(array, 64))
    assert all(part.nbytes <= 64 for part in parts)
    assert np.array_equal(np.concatenate([part.ravel() for part in parts]), array.ravel())
    assert not any(is_pinned(part) for part in parts)


@pytest.mark.parametrize("pinned", [{}, {"pinned": 0}])
def test_all_bytes_of_an_array_are_drained_in_pieces_before_the_kernel_ends(open_device, reports, pinned):
    device = open_device("cuda:0", memory="64MiB", reserve=0, **pinned)
    source, found = numbers(LARGE), np.zeros(LARGE.nbytes, np.uint8)
    array = device.bind(device.allocate(LARGE.nbytes), LARGE)
    run(device, reports, StreamKind.H2D, lambda: device.copy_in(array, source))
    ends = []

    def write(piece, offset):
        found[offset : offset + len(piece)] = piece
        ends.append(offset + len(piece))

    def drain():
        device.drain(array, write)
        assert ends == [PIECE, 2 * PIECE, 3 * PIECE, LARGE.nbytes]

    run(device, reports, StreamKind.D2H, drain)
    assert (found == source.reshape(-1).view(np.uint8)).all()


def test_a_drain_whose_writer_fails_ends_when_the_gpu_has_left_its_blocks(open_device, reports):
    device = open_device("cuda:0", memory="64MiB", reserve=0)
    array = device.bind(device.allocate(LARGE.nbytes), LARGE)

    def fail(_piece, _offset):
        raise OSError("no space left")

    def drain():
        with pytest.raises(OSError, match="no space left"):
            device.drain(array, fail)

    run(device, reports, StreamKind.D2H, drain)
    run(device, reports, StreamKind.H2D, lambda: device.copy_in(array, numbers(LARGE)))
    assert device.lost is None
