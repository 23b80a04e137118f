"""A session on a CUDA device, over the fake of CUDA's runtime: through the whole machine, with the device's threads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.interpreter.errors import DeviceMemoryError
from tensord.streams.cuda.pinned import is_pinned
from tensord.streams.stream import StreamKind

from ..streams.fake_cuda.gpu import Gpu
from ..streams.fake_cuda.module import installed
from .looking_inside import device_of, until

DEVICES: list[Any] = ["cpu:0", {"name": "cuda:0", "memory": "64MiB"}]


@pytest.fixture(autouse=True)
def gpu() -> Iterator[Gpu]:
    with installed(Gpu(seed=1, memory=1 << 30)) as fake:
        yield fake


@pytest.fixture
def session() -> Iterator[Any]:
    with td.connect("local", devices=DEVICES) as opened:
        yield opened


def values(n: int) -> Any:
    return np.random.default_rng(n).random((n, n))


def test_a_program_gives_numpys_values_and_a_sound_trace_and_never_blocks_the_launcher(gpu: Gpu, session: Any) -> None:
    x = session.asarray(values(8), device="cuda:0")
    xp = x.__array_namespace__()
    y = x @ x + 1.0
    y += x
    inverse = xp.linalg.inv(x)
    found = xp.unique_values(xp.astype(x * 3, xp.int64))
    picked = y[x > 0.5]
    expected = values(8) @ values(8) + 1.0 + values(8)
    np.testing.assert_allclose(y.numpy(), expected)
    np.testing.assert_allclose(inverse.numpy(), np.linalg.inv(values(8)))
    np.testing.assert_array_equal(found.numpy(), np.unique((values(8) * 3).astype(int)))
    np.testing.assert_allclose(picked.numpy(), expected[values(8) > 0.5])
    assert session.trace().verify() == []
    assert not [name for name in gpu.blocked if "launcher" in name]


def test_a_kernel_follows_an_upload_without_the_host(gpu: Gpu, session: Any) -> None:
    device = device_of(session, "cuda:0")
    link, compute = device.copy_stream(StreamKind.H2D).raw.queue, device.compute[0].raw.queue
    gpu.enqueue(link, lambda: None, gpu.hold("link"))
    before = compute.launched
    x = session.asarray(np.ones(4), device="cuda:0") + 1.0
    session.flush()
    until(session, lambda: compute.launched > before)
    gpu.release("link")
    np.testing.assert_array_equal(x.numpy(), np.full(4, 2.0))
    assert session.trace().verify() == []


def test_a_kernel_that_lacks_memory_for_a_temporary_fails_as_one_that_lacks_it_for_its_result(
    gpu: Gpu, session: Any
) -> None:
    x = session.asarray(np.ones(1 << 20), device="cuda:0")
    x.wait()
    gpu.free[0] = 0  # another tensor has it
    with pytest.raises(DeviceMemoryError, match="release tensors"):
        session.call("where", [x > 0, x, 2.0])[0].numpy()
    np.testing.assert_array_equal((x + 1.0).numpy(), np.full(1 << 20, 2.0))


@pytest.mark.parametrize("condition", [True, False])
def test_where_takes_a_python_bool(session: Any, condition: bool) -> None:
    x, y = (session.asarray(np.full(4, value), device="cuda:0") for value in (1.0, 2.0))
    (found,) = session.call("where", [condition, x, y])
    np.testing.assert_array_equal(found.numpy(), np.where(condition, np.full(4, 1.0), np.full(4, 2.0)))


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_nextafter_is_exact(session: Any, dtype: str) -> None:
    one, two = np.array([1.0, -1.0, 0.0, 65504.0], dtype), np.array([2.0, 0.0, -1.0, 0.0], dtype)
    x, y = (session.asarray(array, device="cuda:0") for array in (one, two))
    (found,) = session.call("nextafter", [x, y])
    np.testing.assert_array_equal(found.numpy(), np.nextafter(one, two))


def test_sizes_that_change_on_a_full_gpu_find_memory_and_nobody_waits_for_the_device_but_its_own_threads(
    gpu: Gpu,
) -> None:
    """Freed small blocks have to go back to the driver before large ones fit, while kernels still run."""
    device = {"name": "cuda:0", "memory": "32MiB", "cache": 0, "reserve": 0}
    gpu.free[0] = 34 << 20
    with td.connect("local", devices=["cpu:0", device]) as session:
        for size in (1, 4, 2, 8, 1):
            tensors = []
            for n in range(24 // size):
                attributes = {"shape": (size << 18,), "dtype": "float32"}
                tensors.append(session.call("full", [n], attributes, device="cuda:0")[0])
                tensors[-1] += 1
            for n, tensor in enumerate(tensors):
                assert (tensor.numpy() == n + 1).all()
            del tensor
        assert session.trace().verify() == []
    assert {name.split()[0] for name in gpu.blocked} <= {"tensord"}


LARGE = np.arange(3 << 18, dtype="float32")  # 3 MiB


def test_a_large_value_is_read_straight_into_pinned_memory(gpu: Gpu, session: Any) -> None:
    x = (session.asarray(LARGE, device="cuda:0") + 1).wait()
    before = gpu.calls["memcpyAsync"]
    found = x.numpy()
    assert is_pinned(found)
    assert gpu.calls["memcpyAsync"] == before + 1
    assert list(x.residency()) == ["cuda:0"]
    np.testing.assert_array_equal(found, LARGE + 1)


def test_a_small_value_is_read_in_the_order_of_the_launches_by_one_copy(gpu: Gpu, session: Any) -> None:
    x = (session.asarray(np.ones(4), device="cuda:0") + 1).wait()
    before = gpu.calls["memcpyAsync"]
    np.testing.assert_array_equal(x.numpy(), np.full(4, 2.0))
    assert gpu.calls["memcpyAsync"] == before + 1
    assert list(x.residency()) == ["cuda:0"]


@pytest.mark.parametrize("device", ["cpu:0", "cuda:0"])
def test_large_values_from_outside_lie_in_pinned_memory_from_which_the_gpu_copies(
    gpu: Gpu, session: Any, device: str
) -> None:
    x = session.asarray(LARGE, device=device).wait()
    x = x.to_device("cuda:0").wait()
    assert gpu.calls["memcpyAsync"] == 1
    assert device_of(session, "cuda:0")._staged.total == 0
    np.testing.assert_array_equal((x + 1).numpy(), LARGE + 1)


@pytest.mark.parametrize("device", ["cpu:0", "cuda:0"])
def test_a_host_array_is_pinned_and_handed_over_until_the_gpu_has_copied_from_it(
    gpu: Gpu, session: Any, device: str
) -> None:
    array = session.empty_host(LARGE.shape, LARGE.dtype)
    assert is_pinned(array)
    for n in range(3):
        array[...] = LARGE + n
        before = gpu.calls["memcpyAsync"]
        x = session.asarray(array, device=device)
        assert not array.flags.writeable
        x = x.to_device("cuda:0").wait()
        assert gpu.calls["memcpyAsync"] == before + 1
        session.sync()
        assert array.flags.writeable is (device == "cuda:0")  # the host has the value there
        y = x + 1
        del x
        session.sync()
        array[...] = 0
        np.testing.assert_array_equal(y.numpy(), LARGE + n + 1)
    assert device_of(session, "cuda:0")._staged.total == 0


def test_what_cupys_kernels_take_beyond_numpys_is_reserved(session: Any) -> None:
    """NumPy sorts line by line; CuPy makes pairs of line and value for all lines, and merges the pairs."""
    x = session.asarray(np.ones((1300, 1000)), device="cuda:0")
    with pytest.raises(DeviceMemoryError, match=r"and 49\.\d MiB \(52000000 bytes\) of temporaries do not fit"):
        session.call("sort", [x], {"axis": 0})[0].numpy()
    few = session.call("sort", [x[:500]], {"axis": 0})[0]
    np.testing.assert_array_equal(few[::100].numpy(), np.ones((5, 1000)))
