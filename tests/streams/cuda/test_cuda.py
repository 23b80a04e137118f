"""A real CUDA device: memory, copies, order between streams. Skipped on machines without one."""

import numpy as np
import pytest

from tensord.interpreter.programs.fusion import finding_fusions
from tensord.interpreter.types.meta import Meta
from tensord.streams.cuda.block_kernel import BlockKernel
from tensord.streams.cuda.options import available
from tensord.streams.stream import StreamKind

from ..conftest import FakeTask
from .random_fusions import LONGER, SHAPES, UNEVEN, Writer, arguments

REASON = available()
pytestmark = [pytest.mark.cuda, pytest.mark.skipif(REASON is not None, reason=REASON or "")]

META = Meta.of((64, 64), "float32")
VIEW = Meta.of((32, 64), "float32")


@pytest.fixture
def device(open_device):
    return open_device("cuda:0", memory="256MiB")


def array_on(device, meta=META):
    return device.bind(device.allocate(meta.nbytes), meta)


def submit(device, kind, id_, body, sources=()):
    task = FakeTask(id_, body, event_sources=sources, quick=False)
    stream = device.compute[0] if kind is StreamKind.COMPUTE else device.copy_stream(kind)
    stream.submit([task])
    return task


@pytest.mark.parametrize("pinned", [False, True])
def test_bytes_go_in_through_a_kernel_and_out(device, reports, pinned):
    source = device.host_array(META) if pinned else np.empty((64, 64), "float32")
    source[...] = np.arange(64 * 64).reshape(64, 64)
    target, result = array_on(device), np.empty((64, 64), "float32")
    copied = submit(device, StreamKind.H2D, 0, lambda: device.copy_in(target, source))
    added = submit(device, StreamKind.COMPUTE, 1, lambda: device.xp.add(target, 1, out=target), [copied])
    submit(device, StreamKind.D2H, 2, lambda: device.copy_out(target, result), [added])
    assert sorted(reports.wait(3)) == [0, 1, 2]
    assert (result == source + 1).all()


def test_views_are_copied_packed(device, reports):
    source, result = np.random.default_rng(1).random((64, 64), "float32"), np.empty((32, 64), "float32")
    buffer = device.allocate(META.nbytes)
    target = device.bind(buffer, META)
    view = device.bind_view(buffer, VIEW, 0, (2 * META.strides[0], META.strides[1]))
    copied = submit(device, StreamKind.H2D, 0, lambda: device.copy_in(target, source))
    into = submit(device, StreamKind.H2D, 1, lambda: device.copy_in(view, source[1::2]), [copied])
    submit(device, StreamKind.D2H, 2, lambda: device.copy_out(view, result), [into])
    reports.wait(3)
    assert (result == source[1::2]).all()


def test_accounting_is_exact_and_full_is_full(device):
    rest = device.allocate(device.limit - 5)
    assert device.allocate(6) is None
    small = device.allocate(5)
    assert device.allocated == device.limit
    device.free(rest)
    device.free(small)
    assert device.allocated == 0


def test_a_reused_buffer_keeps_its_array(device):
    buffer = device.allocate(META.nbytes)
    array = device.bind(buffer, META)
    device.free(buffer)
    assert device.bind(device.allocate(META.nbytes), META) is array


def test_a_kernels_result_is_adopted(device, reports):
    results = []
    submit(device, StreamKind.COMPUTE, 0, lambda: results.append(device.xp.arange(10)))
    reports.wait(1)
    buffer = device.adopt(results.pop())
    assert device.allocated == buffer.nbytes == 80
    device.free(buffer)
    assert device.allocated == 0


def test_an_error_in_a_kernel_call_stays_with_its_task(device, reports):
    def body() -> None:  # like a task of the engine's, which raises no error of a kernel
        with pytest.raises(ValueError, match="broadcast"):
            device.xp.add(device.xp.ones(3), device.xp.ones(4))

    broken = submit(device, StreamKind.COMPUTE, 0, body)
    fine = submit(device, StreamKind.COMPUTE, 1, lambda: device.xp.ones(3))
    reports.wait(2)
    assert broken.error is None
    assert fine.error is None
    assert device.lost is None


@pytest.mark.parametrize("shapes", [SHAPES, LONGER, UNEVEN], ids=["packs", "three axes", "uneven"])
def test_random_fusions_have_the_bits_of_their_steps(device, shapes):
    """To the last bit of a NaN: the steps have kernels of their own, and each writes its result to memory."""
    found = 0
    with device.current(), device.compute[0].raw:
        for seed in range(20):
            program = Writer(seed, shapes).program(12)
            for fusion in (each for several in finding_fusions(program, [device.fusion_terms()]) for each in several):
                kernel = device.fuse(program, fusion, 0)
                if isinstance(kernel, BlockKernel):
                    compare_on_a_gpu(device, program, fusion, kernel, seed)
                    found += 1
    assert found > 10


def compare_on_a_gpu(device, program, fusion, kernel, seed):
    """A fusion's kernel, and its steps, on the same operands."""
    assert device._fused.sources.compile_now(kernel.digest, kernel.source) is not None
    given = arguments(program, fusion, seed)
    results = []
    for run in (kernel, kernel.instead):
        arrays = {id(x): device.xp.asarray(np.array(x)) for x in given if isinstance(x, np.ndarray)}
        operands = [arrays.get(id(x), x) for x in given]
        run(*operands)
        results.append([x.get().tobytes() for x in operands[len(fusion.inputs) :]])
    assert results[0] == results[1], kernel.source
