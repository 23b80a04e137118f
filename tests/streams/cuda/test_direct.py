"""Elementwise calls as kernels of their own: the calls that have one, and the kernels' results."""

from __future__ import annotations

import shutil
from types import SimpleNamespace

import numpy as np
import pytest

from tensord.interpreter import ops as _ops  # noqa: F401 - fills the registry
from tensord.interpreter.schema.infer import InferCache
from tensord.interpreter.schema.opdef import REGISTRY, find
from tensord.interpreter.types.joined_axes import JoinedAxes
from tensord.interpreter.types.meta import Meta
from tensord.streams.cuda.direct import BLOCK, DirectKernels
from tensord.streams.device import KernelCall

from ...each_case import each_case
from .host_compiled import HostArray, HostKernels
from .nvrtc import Compiler

LOOPS = {
    "add": [("bb", "b", "out0 = in0 + in1"), ("ff", "f", "out0 = in0 + in1"), ("dd", "d", "out0 = in0 + in1")],
    "less": [("qq", "?", "out0 = in0 < in1"), ("ff", "?", "out0 = in0 < in1")],
    "divide": [("ff", "f", "out0 = static_cast<out0_type>(in0) / static_cast<out0_type>(in1)"), ("FF", "F", "no")],
    "sqrt": [("f", "f", "out0 = sqrt(in0)"), ("d", "d", "out0 = sqrt(in0)")],
    "remainder": [("ff", "f", "out0 = in0")],
}
INFER = InferCache()


def call_of(op, *operands):
    """A call as a plan has it."""
    metas = tuple([Meta.of(x.shape, x.dtype) if isinstance(x, np.ndarray) else type(x) for x in operands])
    return KernelCall(find(op), {}, metas, INFER.infer(find(op), metas, ()), False, 0)


def array(shape, dtype="float32", start=1):
    values = np.arange(start, start + np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    return values.view(HostArray)


class Sources(DirectKernels):
    """Keeps the sources of the kernels, without launching."""

    def __init__(self, cupy):
        super().__init__(cupy)
        self.sources = {}

    def launching(self, source, *_rest):
        self.sources[source] = None


CALLS = [
    ("add", (array((3, 100)), array((3, 100), start=7))),
    ("add", (array((3, 100)), array(100))),
    ("add", (array((3, 1)), array((3, 100)))),
    ("add", (array((2, 3, 5)), array((), start=4))),
    ("add", (array(()), array(()))),
    ("add", (array((2, 1, 5)), array((5,)))),
    ("add", (array(4, "int8"), array(4, "int8"))),
    ("add", (array(300), array(300, "float64"))),
    ("add", (array(5), 0.1)),
    ("add", (2.5, array(5, "float64"))),
    ("less", (array(9, "uint8"), 4)),
    ("less", (array(9, "int32"), array(9, "int8", start=-3))),
    ("divide", (array(9), array(9, start=3))),
    ("sqrt", (array(1000),)),
    ("sqrt", (array(7, "int32"),)),
]


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """The kernels of all calls, compiled together."""
    found = HostKernels(tmp_path_factory.mktemp("kernels"), LOOPS)
    sources = Sources(found)
    for op, operands in CALLS:
        sources.kernel_of(call_of(op, *operands))
    found.compile(list(sources.sources))
    return found


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")
@each_case(("op", "operands"), CALLS)
def test_a_kernel_computes_what_the_ufunc_does(kernels, op, operands):
    call = call_of(op, *operands)
    (result,) = call.outputs
    kernels.launches.clear()
    kernel = DirectKernels(kernels).kernel_of(call)
    assert kernel is not None
    found = np.zeros(result.shape, result.dtype).view(HostArray)
    kernel(*operands, found)
    expected = getattr(np, op)(*[x.view(np.ndarray) if isinstance(x, np.ndarray) else x for x in operands])
    assert found.dtype == expected.dtype
    assert found.tobytes() == expected.tobytes()
    assert kernels.launches == [-(-result.size // BLOCK)]
    assert kernels.left == []


@each_case(
    ("op", "operands"),
    [
        ("add", (array((2, 3, 5)), array((1, 3, 1)))),  # three groups of axes
        ("add", (array(4, "float16"), array(4, "float16"))),
        ("add", (array(4, "int32"), array(4, "int32"))),  # no loop takes them without a cast of the result
        ("add", (array(0), array(0))),
        ("divide", (array(4, "complex64"), array(4, "complex64"))),
        ("remainder", (array(4), array(4))),  # differs from CuPy's ufunc
    ],
)
def test_other_calls_are_left_to_cupy(tmp_path, op, operands):
    assert DirectKernels(HostKernels(tmp_path, LOOPS)).kernel_of(call_of(op, *operands)) is None


def test_operands_that_are_not_packed_and_numbers_that_do_not_fit_are_the_ufuncs(tmp_path):
    kernels = HostKernels(tmp_path, LOOPS)
    strided, out = array((4, 4)).T, np.zeros((4, 4), np.float32).view(HostArray)
    kernel = DirectKernels(kernels).kernel_of(call_of("add", array((4, 4)), array((4, 4))))
    assert kernel is not None
    kernel(strided, strided, out)
    assert out.tolist() == (2 * strided).tolist()
    kernel = DirectKernels(kernels).kernel_of(call_of("less", array(3, "uint8"), 1))
    assert kernel is not None
    kernel(array(3, "uint8"), 1 << 70, below := np.zeros(3, bool).view(HostArray))
    assert below.all()
    assert kernels.left == ["add", "less"]
    assert kernels.launches == []


def test_a_kernel_says_what_it_launches_for_operands_and_that_others_are_left_to_cupy(tmp_path):
    kernels = HostKernels(tmp_path, LOOPS)
    kernels.RawKernel = lambda *_: SimpleNamespace(kernel="compiled")  # type: ignore[method-assign]
    kernel = DirectKernels(kernels).kernel_of(call_of("add", array((3, 100)), 0.5))
    assert kernel is not None
    x, out = array((3, 100)), array((3, 100))
    launch = kernel.launch_of((x, 0.1, out))
    assert launch is not None
    assert launch.function == "compiled"
    assert (launch.grid, launch.block) == ((2,), (BLOCK,))
    assert launch.arguments[0] is x
    assert launch.arguments[2] is out
    assert launch.arguments[1] == np.float32(0.1)
    assert [type(number) for number in launch.arguments[3:]] == [np.uint32, np.uint32]
    assert launch.arguments[3:] == (300, 300)
    assert kernel.launch_of((array((100, 3)).T, 0.1, out)) is None


def test_a_kernel_is_compiled_once_for_all_calls_whose_plans_have_the_same_key(tmp_path):
    sources = []

    class Kernels(HostKernels):
        def RawKernel(self, source, name, options=()):  # noqa: N802, ARG002 - CuPy's name
            sources.append((source, name))
            return type("Compiled", (), {"kernel": lambda *_: None})

    direct = DirectKernels(Kernels(tmp_path, LOOPS))
    for shape in ((3, 4), (5,), (2, 2, 2)):
        kernel = direct.kernel_of(call_of("add", array(shape), array(shape)))
        assert kernel is not None
        assert len(sources) == min(len(sources), 1)  # making a kernel compiles nothing
        kernel(array(shape), array(shape), array(shape))
    assert len(sources) == 1


def test_where_a_kernel_does_not_compile_the_ufunc_is_called_and_that_is_said_once(tmp_path, caplog):
    class Kernels(HostKernels):
        def RawKernel(self, *_):  # noqa: N802 - CuPy's name
            raise RuntimeError("no header")

    kernels = Kernels(tmp_path, LOOPS)
    kernel = DirectKernels(kernels).kernel_of(call_of("sqrt", array(4)))
    assert kernel is not None
    for _ in range(2):
        kernel(array(4), out := np.zeros(4, np.float32).view(HostArray))
    assert out.tolist() == np.sqrt(array(4)).tolist()
    assert kernels.left == ["sqrt", "sqrt"]
    assert [record.message.split(":")[0] for record in caplog.records] == [
        "a generated kernel does not compile; CuPy's ufunc takes its place"
    ]


def test_large_arrays_are_counted_in_64_bits(tmp_path):
    metas = (Meta.of((1 << 30,), np.dtype("float32")),) * 2
    call = KernelCall(find("add"), {}, metas, INFER.infer(find("add"), metas, ()), False, 0)
    sources = Sources(HostKernels(tmp_path, LOOPS))
    sources.kernel_of(call)
    assert "const unsigned long long i = " in next(iter(sources.sources))


@each_case(
    ("shapes", "extends", "lengths"),
    [
        ([(3, 4), (3, 4)], ((True, True),), (12,)),
        ([(3, 4), (4,)], ((True, False), (True, True)), (3, 4)),
        ([(2, 3, 4), (3, 4)], ((True, False), (True, True)), (2, 12)),
        ([(2, 1, 4), (2, 3, 1)], ((True, True), (False, True), (True, False)), (2, 3, 4)),
        ([(), (1, 1)], (), ()),
    ],
)
def test_axes_are_joined(shapes, extends, lengths):
    assert JoinedAxes.of(shapes) == (extends, lengths)


@pytest.mark.cupy
def test_every_kernel_of_cupys_loops_compiles():
    compiler = Compiler.here()
    sources = sources_of(compiler.cupy)
    assert len(sources) > 250
    compiler.compile(sources)


def sources_of(cupy):
    """The source of each kernel, of operands of one dtype, a number, and a row."""
    direct = Sources(cupy)
    for op in REGISTRY.values():
        for dtype in ("bool", "int8", "uint16", "int32", "int64", "float32", "float64"):
            whole, row = Meta.of((6, 4), np.dtype(dtype)), Meta.of((4,), np.dtype(dtype))
            for metas in ((whole,), (whole, whole), (whole, row), (whole, int), (float, whole)):
                if op.ufunc and op.inputs == len(metas):
                    try:
                        outputs = INFER.infer(op, metas, ())
                    except Exception:  # noqa: S112 - the op does not take these
                        continue
                    direct.kernel_of(KernelCall(op, {}, metas, outputs, False, 0))
    return list(direct.sources)
