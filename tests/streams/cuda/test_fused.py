"""Fusions as generated kernels, compiled as C++ for the host: the bits of the steps' own kernels."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensord.interpreter.programs.builder import Builder
from tensord.interpreter.programs.fusion import Fusion
from tensord.interpreter.programs.program import Program
from tensord.interpreter.types.meta import Meta
from tensord.streams.cuda import sources
from tensord.streams.cuda.unfused import Unfused

from ...each_case import each_case
from .host_compiled import HostArray
from .kernels_on_host import Host
from .random_fusions import LONGER, SHAPES, UNEVEN, Writer, arguments, away, bits, chain, copied, is_array

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


@pytest.mark.parametrize("shapes", [SHAPES, LONGER, UNEVEN], ids=["packs", "three axes", "uneven"])
def test_random_fusions_have_the_bits_of_their_steps(host: Host, shapes: tuple[tuple[int, ...], ...]) -> None:
    programs = [Writer(seed, shapes).program(12) for seed in range(60)]
    found = [(program, fusion) for program in programs for fusion in host.fusions(program) if fusion.outputs]
    kernels = [host.kernel(program, fusion) for program, fusion in found]
    assert len(kernels) > 40
    assert sum(len(fusion.outputs) > 1 for _, fusion in found) > 10
    assert sum(max(fusion.over, default=-1) >= 0 for _, fusion in found) > 10
    assert {"where", "relu_grad", "sigmoid", "astype"} <= {p.steps[n].op for p, f in found for n in f.steps}
    reference = [host.one_by_one(program, fusion) for program, fusion in found]
    host.compile()
    for seed, ((program, fusion), kernel) in enumerate(zip(found, kernels, strict=True)):
        given = arguments(program, fusion, seed)
        expected, beyond = copied(given), away(given)
        reference[seed](*expected)
        assert kernel.is_ready()
        kernel(*given)
        host.cupy.launched.clear()
        kernel(*beyond)
        assert host.cupy.launched == ["fused"] or math.prod(fusion.shape) == 1
        for one, other, third in zip(given, beyond, expected, strict=True):
            assert not is_array(one) or bits(one) == bits(other) == bits(third), kernel.source


@each_case(
    ("dtype", "shape", "name"),
    [
        ("float32", (1000,), "fused_packs"),
        ("float32", (1001,), "fused_packs"),  # the last one is computed alone
        ("float32", (1,), "fused_packs"),
        ("float64", (3, 5), "fused_packs"),
    ],
)
def test_neighbours_are_read_at_once_where_memory_allows_it(
    host: Host, dtype: str, shape: tuple[int, ...], name: str
) -> None:
    program = chain("multiply", "add", dtype=dtype, shape=shape)
    (fusion,) = host.fusions(program)
    kernel = host.kernel(program, fusion)
    host.compile()
    x, number, out = arguments(program, fusion)
    host.cupy.launched.clear()
    kernel(x, number, out)
    assert bits(out) == bits(x * np.dtype(dtype).type(number) + np.dtype(dtype).type(number))
    assert host.cupy.launched == [name]


def test_rows_that_are_no_whole_packs_are_computed_element_by_element(host: Host) -> None:
    program, fusion = with_row(host, (4, 7))
    kernel = host.kernel(program, fusion)
    host.compile()
    kernel(*arguments(program, fusion))
    assert host.cupy.launched == ["fused"]


def with_row(host: Host, shape: tuple[int, int]) -> tuple[Program, Fusion]:
    """A row is added to a matrix, and the sum squared."""
    builder = Builder()
    x, row = builder.parameter(Meta.of(shape, "float32")), builder.parameter(Meta.of(shape[1:], "float32"))
    (total,) = builder.op("add", [x, row])
    (square,) = builder.op("square", [total])
    program = builder.finish([square])
    (fusion,) = host.fusions(program)
    return program, fusion


def test_until_it_is_compiled_a_fusion_runs_step_by_step(host: Host) -> None:
    program = chain("multiply", "add")
    (fusion,) = host.fusions(program)
    kernel = host.kernel(program, fusion)
    x, number, out = arguments(program, fusion)
    kernel(x, number, out)
    assert not kernel.is_ready()
    assert host.cupy.launched == []
    first = bits(out)
    host.compile()
    out[...] = 0
    kernel(x, number, out)
    assert (kernel.is_ready(), host.cupy.launched, bits(out)) == (True, ["fused_packs"], first)


def test_a_source_is_compiled_once_for_all_fusions_that_have_it(host: Host) -> None:
    sizes = [chain("multiply", "add", shape=shape) for shape in ((10,), (3, 7), (2, 2, 2))]
    kernels = [host.kernel(program, fusion) for program in sizes for fusion in host.fusions(program)]
    assert len(host.waiting) == 1
    host.compile()
    assert [kernel.is_ready() for kernel in kernels] == [True] * 3
    host.kernel(sizes[0], host.fusions(sizes[0])[0])
    assert not host.waiting


def test_operands_that_are_not_packed_and_numbers_that_do_not_fit_go_step_by_step(host: Host) -> None:
    builder = Builder()
    x = builder.parameter(Meta.of((4, 4), "uint8"))
    number = ~builder.number("int", "parameter")
    (below,) = builder.op("less", [x, number])
    (above,) = builder.op("equal", [below, builder.op("greater", [x, number])[0]])
    program = builder.finish([above])
    (fusion,) = host.fusions(program)
    kernel = host.kernel(program, fusion)
    host.compile()
    values = np.arange(16, dtype=np.uint8).reshape(4, 4).view(HostArray)
    out = np.zeros((4, 4), bool).view(HostArray)
    kernel(values.T, 7, out)
    assert out.tolist() == ((values.T < 7) == (values.T > 7)).tolist()
    kernel(values, 1 << 70, out)
    assert not out.any()
    assert host.cupy.launched == []


def test_where_a_kernel_does_not_compile_the_steps_run_and_that_is_said_once(
    host: Host, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = chain("multiply", "add")
    (fusion,) = host.fusions(program)
    kernel = host.kernel(program, fusion)

    def refuse(*_: Any) -> None:
        raise RuntimeError("no header")

    monkeypatch.setattr(host.cupy, "RawKernel", refuse)
    for work in host.waiting:
        work()
    x, number, out = arguments(program, fusion)
    for _ in range(2):
        kernel(x, number, out)
    assert bits(out) == bits(x * np.float32(number) + np.float32(number))
    assert [record.message.split(":")[0] for record in caplog.records] == [
        "a generated kernel does not compile; its ops run one by one"
    ]


def test_no_more_sources_are_compiled_than_are_kept(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MAX_SOURCES", 1)
    first, second = chain("multiply", "add"), chain("add", "multiply")
    kernels = [host.kernel(program, fusion) for program in (first, second) for fusion in host.fusions(program)]
    assert len(host.waiting) == 1
    host.compile()
    assert [kernel.is_ready() for kernel in kernels] == [True, False]


def test_a_kernel_says_which_launch_a_call_is(host: Host) -> None:
    program = chain("multiply", "add", shape=(1000,))
    (fusion,) = host.fusions(program)
    kernel = host.kernel(program, fusion)
    x, number, out = arguments(program, fusion)
    assert kernel.launch_of((x, number, out)) is None  # the kernel is not compiled
    host.compile()
    launch = kernel.launch_of((x, number, out))
    assert launch is not None
    assert (launch.grid, launch.block) == ((1,), (256,))
    assert kernel.launch_of((x[::2], number, out)) is None
    launch.function(launch.grid, launch.block, launch.arguments)
    assert bits(out) == bits(x * np.float32(number) + np.float32(number))


def test_a_kernel_is_pending_until_it_is_compiled(host: Host) -> None:
    program = chain("multiply", "add")
    (fusion,) = host.fusions(program)
    kernel = host.kernel(program, fusion)
    assert kernel.is_pending()
    host.compile()
    assert not kernel.is_pending()


def test_large_arrays_are_counted_in_64_bits(host: Host) -> None:
    program = chain("multiply", "add", shape=(1 << 30,))
    (fusion,) = host.fusions(program)
    assert "const unsigned long long i = " in host.kernel(program, fusion).source


def test_what_the_steps_take_between_them_is_declared(host: Host) -> None:
    builder = Builder()
    x = builder.parameter(Meta.of((1 << 20,), "float32"))
    (double,) = builder.op("astype", [x], {"dtype": "float64"})
    (root,) = builder.op("sqrt", [double])
    (result,) = builder.op("less", [root, double])
    program = builder.finish([result])
    (fusion,) = host.fusions(program)
    assert host.kernel(program, fusion).scratch == 2 * 8 << 20
    assert host.kernel(*with_row(host, (4, 8))).scratch == 0


def test_a_kernel_has_no_more_parameters_than_cuda_takes(host: Host) -> None:
    builder = Builder()
    values = [builder.parameter(Meta.of((64,), "float32")) for _ in range(600)]
    total = values[0]
    for value in values[1:]:
        (total,) = builder.op("add", [total, value])
    program = builder.finish([total])
    steps = tuple(range(len(program.steps)))
    fusion = Fusion(steps, 0, (64,), 1, tuple(values), (total,), tuple(range(600, total)), (-1,))
    assert isinstance(host.kernels.kernel_of(program, fusion, host.plain), Unfused)


@each_case(
    ("op", "dtypes", "attributes"),
    [
        ("add", ("float16", "float16"), {}),
        ("add", ("complex64", "complex64"), {}),
        ("log", ("float64",), {}),  # the compiler treats it differently beside others
        ("sum", ("float32",), {}),
        ("erf", ("float32",), {}),
    ],
)
def test_other_steps_are_not_fused(host: Host, op: str, dtypes: tuple[str, ...], attributes: dict[str, Any]) -> None:
    builder = Builder()
    values = [builder.parameter(Meta.of((4,), name)) for name in dtypes]
    (value,) = builder.op(op, values, attributes)
    program = builder.finish([value])
    assert not host.kernels.takes(program, program.steps[0])


def test_empty_tensors_are_not_fused(host: Host) -> None:
    program = chain("multiply", "add", shape=(0,))
    assert not host.fusions(program)
