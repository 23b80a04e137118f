"""Memory of cpu and sim devices: exact accounting, limits, bindings, adoption."""

import numpy as np
import pytest

from tensord.interpreter.types.meta import Meta
from tensord.interpreter.wire.host_memory import HostMemory
from tensord.streams.host.host import physical_memory

BOTH = pytest.mark.parametrize("name", ["cpu:0", "sim:0"])
VECTOR = Meta.of((16,), "float32")


@BOTH
def test_accounting_is_exact_to_the_byte(open_device, name):
    device = open_device(name, memory=1000)
    sizes = [1, 63, 64, 65, 0, 300]
    buffers = [device.allocate(nbytes) for nbytes in sizes]
    assert device.allocated == sum(sizes)
    for buffer, nbytes in zip(buffers, sizes, strict=True):
        before = device.allocated
        device.free(buffer)
        assert before - device.allocated == nbytes
    assert device.allocated == 0


@BOTH
def test_exactly_full_fits_and_one_byte_more_does_not(open_device, name):
    device = open_device(name, memory=1000)
    half, rest = device.allocate(500), device.allocate(500)
    assert device.allocate(1) is None
    assert device.allocated == 1000
    device.free(half)
    assert device.allocate(501) is None
    again = device.allocate(500)
    assert again is not None
    device.free(rest)
    assert device.allocated == 500


@BOTH
def test_what_is_kept_for_reuse_makes_room_for_what_is_needed(open_device, name):
    device = open_device(name, memory=1 << 20)
    for nbytes in (1 << 19, 1 << 18, 1 << 17):
        device.free(device.allocate(nbytes))
    assert device.pool.cached > 0
    assert device.allocate(1 << 20) is not None
    assert device.pool.cached == 0


@BOTH
def test_a_reused_buffer_of_the_same_meta_keeps_its_array(open_device, name):
    device = open_device(name)
    buffer = device.allocate(VECTOR.nbytes)
    array = device.bind(buffer, VECTOR)
    assert (array.shape, array.dtype) == (VECTOR.shape, VECTOR.dtype)
    device.free(buffer)
    again = device.allocate(VECTOR.nbytes)
    assert device.bind(again, VECTOR) is array
    other = device.bind(again, Meta.of((4, 4), "int32"))
    assert other.shape == (4, 4)
    assert np.shares_memory(other, array)


@BOTH
def test_a_free_buffer_cannot_be_freed_again(open_device, name):
    device = open_device(name)
    buffer = device.allocate(8)
    device.free(buffer)
    with pytest.raises(ValueError, match="free already"):
        device.free(buffer)
    assert device.allocated == 0


@BOTH
def test_a_view_lies_over_the_buffer(open_device, name):
    device = open_device(name)
    buffer = device.allocate(VECTOR.nbytes)
    device.bind(buffer, VECTOR)[...] = device.xp.arange(16)
    view = device.bind_view(buffer, Meta.of((2, 3), "float32"), 60, (-32, -8))
    assert view.tolist() == [[15, 13, 11], [7, 5, 3]]
    if device.xp is np:  # CuPy trusts a view's offset
        with pytest.raises(ValueError, match="incompatible"):
            device.bind_view(buffer, Meta.of((2,), "float32"), 1 << 20, (4,))


@BOTH
def test_zero_bytes_and_zero_dimensions(open_device, name):
    device = open_device(name)
    assert device.bind(device.allocate(0), Meta.of((0, 3), "int8")).shape == (0, 3)
    assert device.bind(device.allocate(8), Meta.of((), "float64")).shape == ()
    assert device.adopt(np.empty((0, 3))).nbytes == 0
    assert device.adopt(np.float64(3).reshape(())).array[()] == 3


def test_cpu_adopts_without_a_copy(open_device):
    device = open_device("cpu:0", memory=100)
    array = np.arange(10.0)
    buffer = device.adopt(array)
    assert buffer.array is array
    assert buffer.meta is Meta.of((10,), "float64")
    assert np.shares_memory(device.bind(buffer, Meta.of((20,), "float32")), array)
    assert device.allocated == 80
    assert device.adopt(np.arange(10.0)) is None
    device.free(buffer)
    assert device.allocated == 0


@pytest.mark.parametrize("read_only", [False, True])
def test_cpu_adopts_half_of_a_clients_memory_at_least(open_device, read_only):
    device = open_device("cpu:0")
    memory = HostMemory.over(np.zeros(160, np.uint8), 160, None)
    for count, adopted in ((20, True), (10, True), (9, False)):
        array = np.ndarray((count,), np.float64, memory, 160 - 8 * count)
        array.flags.writeable = not read_only
        buffer = device.adopt(array)
        assert np.shares_memory(device.bind(buffer, Meta.of((count,), "float64")), memory) is adopted
        if adopted:
            assert buffer.raw.base is array  # the array's end reports that its memory is unused
        device.discard(buffer)
    assert device.allocated == 0


@pytest.mark.parametrize("unfit", [np.frombuffer(bytes(80)), np.arange(100.0)[10:20], np.arange(20.0)[::2]])
def test_cpu_copies_what_it_cannot_own(open_device, unfit):
    device = open_device("cpu:0")
    buffer = device.adopt(unfit)
    array = device.bind(buffer, Meta.of((10,), "float64"))
    assert array.tolist() == unfit.tolist()
    assert array.flags.writeable
    assert not np.shares_memory(array, unfit)


def test_sim_adopts_into_its_own_memory(open_device):
    device = open_device("sim:0")
    array = np.arange(10.0)
    buffer = device.adopt(array)
    assert device.owns(buffer.array)
    assert not np.shares_memory(buffer.array, array)
    assert buffer.array.tolist() == array.tolist()


def test_the_memory_of_a_cpu_device_is_the_machines_unless_told(open_device):
    assert open_device("cpu:0").limit == physical_memory()


def test_more_than_the_host_has_does_not_fit(open_device):
    device = open_device("cpu:0", memory="1024TiB")
    assert device.allocate(1 << 49) is None
    assert device.allocated == 0
