"""Fusions as generated kernels, compiled as C++ for the host: bit for bit what the steps' own kernels give."""

from __future__ import annotations

import itertools
import math
import random
import shutil
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensord.interpreter.errors import TensordError
from tensord.interpreter.programs.builder import Builder
from tensord.interpreter.programs.fusion import Fusion, finding_fusions
from tensord.interpreter.programs.program import Program
from tensord.interpreter.schema.infer import infer_once
from tensord.interpreter.schema.opdef import REGISTRY, OpDef, find
from tensord.interpreter.types.joined_axes import JoinedAxes
from tensord.interpreter.types.meta import Meta
from tensord.streams.cuda import direct, sources
from tensord.streams.cuda.block import Block, block_of
from tensord.streams.cuda.block_kernel import BlockKernel
from tensord.streams.cuda.block_source import source_of
from tensord.streams.cuda.direct import DirectKernels
from tensord.streams.cuda.fused import FusedKernels
from tensord.streams.cuda.loops import NAMES, Loop
from tensord.streams.cuda.unfused import Unfused
from tensord.streams.device import KernelCall

from ...each_case import each_case
from .host_compiled import HostArray, HostKernels, KernelsOfCupy, dtypes
from .loops_of_cupy import LOOPS
from .nvrtc import Compiler

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")

SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, np.nan, np.inf, -np.inf, 1e-42, 3e38, 0.1]
UNARY = ("negative", "square", "sqrt", "exp", "tanh", "relu", "sigmoid", "silu", "isnan", "reciprocal", "astype")
BINARY = (
    *("add", "subtract", "multiply", "divide", "maximum", "minimum", "less", "greater", "equal"),
    *("relu_grad", "sigmoid_grad", "tanh_grad"),
)
# NumPy takes another one of two zeros, or rounds otherwise, than C++.
UNLIKE = {"maximum", "minimum", "relu", "exp", "tanh", "sigmoid", "silu"}
SHAPES = ((6, 8), (6, 8), (6, 8), (6, 8), (8,), (6, 1), (1, 1), ())
LONGER = ((2, 3, 8), (2, 3, 8), (2, 3, 8), (3, 1), (2, 1, 8), (8,), (2, 1, 1), (1, 3, 8), ())
UNEVEN = ((5, 7), (5, 7), (5, 7), (7,), (5, 1), ())
ATTRIBUTES: dict[str, list[dict[str, Any]]] = {
    "astype": [{"dtype": name} for name in ("bool", "int32", "float32", "float64")],
    "gelu": [{"approximate": "tanh"}, {"approximate": "none"}],
    "gelu_grad": [{"approximate": "tanh"}, {"approximate": "none"}],
}
OPS = [(name, ("float32", "float64", "int8", "uint64")[n % 4]) for n, name in enumerate(REGISTRY)]
OPS += [(name, "float32") for name in REGISTRY]
CAST = {"float32": "float64", "float64": "float32", "int32": "float32", "bool": "int32", "int8": "float64"}


class Writer:
    """A program of elementwise ops, drawn by a seed."""

    def __init__(self, seed: int, shapes: Sequence[tuple[int, ...]] = SHAPES) -> None:
        self.random = random.Random(seed)
        self.builder = Builder()
        dtypes = self.random.choice([("float32",), ("float64", "float32"), ("int32", "float32"), ("int8", "bool")])
        self.values = [self.builder.parameter(Meta.of(shape, self.random.choice(dtypes))) for shape in shapes]
        self.given = len(self.values)
        self.numbers = [
            ~self.builder.number("float", "constant", (), 0.1),
            ~self.builder.number("int", "constant", (), 3),
            ~self.builder.number("float", "parameter"),
        ]

    def program(self, steps: int) -> Program:
        made = []
        for _ in range(steps):
            with suppress(TensordError):
                made.append(self.step())
                newest, variables = self.builder.newest, self.builder.variables
                self.values = [value for value in (*self.values, made[-1]) if newest[variables[value]] == value]
        own = [value for value in made if value in self.values and self.builder.variables[value] >= self.given]
        kept = [value for value in own if value == own[-1] or self.random.random() < 0.2]
        return self.builder.finish(kept)

    def step(self) -> int:
        choose = self.random.choice
        if self.random.random() < 0.4:
            name = choose(UNARY)
            x = self.operand()
            attributes = {"dtype": CAST.get(self.dtype(x), "float32")} if name == "astype" else {}
            return self.call(name, [x], attributes)
        if self.random.random() < 0.2:
            conditions = [value for value in self.values if self.dtype(value) == "bool"]
            if conditions:
                return self.call("where", [choose(conditions), self.operand(), choose([*self.numbers, self.operand()])])
        operands = [self.operand(), choose([*self.numbers, self.operand(), self.operand()])]
        self.random.shuffle(operands)
        return self.call(choose(BINARY), operands)

    def operand(self) -> int:
        """Rather a new value."""
        return self.values[-1 - int(self.random.random() ** 2 * len(self.values))]

    def dtype(self, value: int) -> str:
        meta = self.builder.metas[value]
        assert meta is not None
        return meta.dtype.name

    def call(self, name: str, operands: list[int], attributes: Any = None) -> int:
        target = None
        if operands[0] >= 0 and self.random.random() < 0.15:
            target = [operands[0]]
        (value,) = self.builder.op(name, operands, attributes or {}, into=target)
        return value


def alone(op: str, metas: Sequence[Any], attributes: Any) -> tuple[Program, Fusion]:
    """A fusion of one step."""
    builder = Builder()
    values = [
        builder.parameter(meta) if isinstance(meta, Meta) else ~builder.number(meta.__name__, "parameter")
        for meta in metas
    ]
    (result,) = builder.op(op, values, attributes)
    meta = builder.metas[result]
    assert meta is not None
    inputs = tuple(dict.fromkeys(values))
    fusion = Fusion((0,), 0, meta.shape, len(meta.shape), inputs, (result,), (), (-1,))
    return builder.finish([result]), fusion


class Collecting(DirectKernels):
    """Keeps the sources of its kernels."""

    def __init__(self, cupy: Any) -> None:
        super().__init__(cupy)
        self.sources: set[str] = set()

    def launching(self, source: str, *rest: Any) -> Any:
        self.sources.add(source)
        return super().launching(source, *rest)


class Host:
    """Generated kernels that run on the host. `waiting`: what is to be compiled."""

    def __init__(self, folder: Path) -> None:
        self.cupy = HostKernels(folder, LOOPS)
        self.waiting: list[Callable[[], None]] = []
        self.kernels = FusedKernels(self.cupy, self.waiting.append, nullcontext)
        self.direct = Collecting(self.cupy)
        self.made: list[BlockKernel] = []

    def compile(self) -> None:
        """Compile what is waiting, all at once."""
        self.cupy.compile([*{kernel.source for kernel in self.made}, *self.direct.sources])
        for work in self.waiting:
            work()
        self.waiting.clear()

    def bind(self, call: KernelCall) -> tuple[Any, int]:
        """A step's own kernel: NumPy's, where its bits are those of C++."""
        if call.op.name in UNLIKE:
            program, fusion = alone(call.op.name, call.metas, call.attributes)
            return self.direct.kernel_of(call) or self.kernel(program, fusion, self.plain), 0
        return self.plain(call)

    def plain(self, call: KernelCall) -> tuple[Any, int]:
        """NumPy's kernel."""
        own = call.op.bind(np, len(call.metas), call.attributes)

        def run(*arrays: Any) -> None:
            with np.errstate(all="ignore"):
                own(*arrays)

        return run, 0

    def kernel(self, program: Program, fusion: Fusion, bind: Any = None) -> BlockKernel:
        """The kernel of a fusion, which is not compiled yet."""
        found = self.kernels.kernel_of(program, fusion, bind or self.bind)
        assert isinstance(found, BlockKernel)
        self.made.append(found)
        return found

    def one_by_one(self, program: Program, fusion: Fusion) -> Unfused:
        """The steps with their own kernels."""
        return Unfused(program, fusion, self.bind, self.kernels._empty, self.kernels._lay_over)

    def fusions(self, program: Program) -> list[Fusion]:
        """The fusions of a program."""
        return [each for found in finding_fusions(program, [self.kernels.terms()]) for each in found]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def some(meta: Meta, seed: int) -> Any:
    """Ordinary and special values."""
    rng = np.random.default_rng(seed)
    if meta.dtype.kind in "biu":
        return rng.integers(0, 2 if meta.dtype.kind == "b" else 100, meta.shape).astype(meta.dtype).view(HostArray)
    values = np.where(rng.random(meta.shape) < 0.3, rng.choice(SPECIAL, meta.shape), rng.normal(size=meta.shape))
    with np.errstate(all="ignore"):
        return np.asarray(values).astype(meta.dtype).view(HostArray)


def arguments(program: Program, fusion: Fusion, seed: int = 0) -> list[Any]:
    """Operands and results of a fusion; a result that it writes over an operand is that operand."""
    given: list[Any] = []
    for place, n in enumerate(fusion.inputs):
        meta = program.metas[n] if n >= 0 else None
        number = program.numbers[~n] if n < 0 else None
        value = 0.3 if number is not None and number.op == "parameter" else None if number is None else number.value
        given.append(value if meta is None else some(meta, seed + place))
    for n, over in zip(fusion.outputs, fusion.over, strict=True):
        meta = program.metas[n]
        assert meta is not None
        given.append(given[over] if over >= 0 else np.zeros(meta.shape, meta.dtype).view(HostArray))
    return given


def copied(given: list[Any]) -> list[Any]:
    """Copies of the arrays, those that are one staying one."""
    copies = {id(x): x.copy() for x in given if isinstance(x, np.ndarray)}
    return [copies.get(id(x), x) for x in given]


def away(given: list[Any]) -> list[Any]:
    """Copies of the arrays that begin where no access of 16 bytes does, nor one of two elements."""
    return [copies.get(id(x), x) for copies in [{id(x): shifted(x) for x in given if is_array(x)}] for x in given]


def shifted(array: Any) -> Any:
    """A copy of the array, an element beyond a multiple of 16 bytes."""
    width = array.dtype.itemsize
    memory = np.zeros(array.nbytes + 32, np.uint8)
    start = -memory.ctypes.data % 16 + width
    found = np.ndarray(array.shape, array.dtype, memory, start).view(HostArray)
    found[...] = array
    return found


def is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray)


def bits(array: Any) -> bytes:
    """All NaNs are one: a processor gives them the sign that it likes."""
    plain = np.asarray(array)
    return (
        np.where(np.isnan(plain), np.array(np.nan, plain.dtype), plain) if plain.dtype.kind == "f" else plain
    ).tobytes()


def chain(*ops: str, dtype: str = "float32", shape: tuple[int, ...] = (1000,)) -> Program:
    """Ops one after the other, each with a number."""
    builder = Builder()
    value = builder.parameter(Meta.of(shape, dtype))
    number = ~builder.number("float", "parameter")
    for op in ops:
        (value,) = builder.op(op, [value, number])
    return builder.finish([value])


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
    monkeypatch.setattr(sources, "MOST", 1)
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
    assert kernel.launch_of((x, number, out)) is None  # it is not compiled
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
        ("log", ("float64",), {}),  # the compiler treats it otherwise beside others
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


SINGLE = [
    ("relu", ("float32",), {}),
    ("relu", ("int8",), {}),
    ("relu_grad", ("float32", "float32"), {}),
    ("sigmoid", ("float64",), {}),
    ("silu", ("float32",), {}),
    ("sigmoid_grad", ("float32", "float32"), {}),
    ("tanh_grad", ("float64", "float64"), {}),
    ("gelu", ("float32",), {"approximate": "tanh"}),
    ("maximum", ("float32", "float64"), {}),
    ("clip", ("float32", "float", "float"), {}),
    ("where", ("bool", "float32", "float64"), {}),
    ("where", ("bool", "float64", "float"), {}),
    ("astype", ("float64",), {"dtype": "float32"}),
    ("astype", ("float32",), {"dtype": "bool"}),
    ("astype", ("bool",), {"dtype": "int64"}),
]


def operands_of(dtypes: Sequence[str], shapes: Sequence[tuple[int, ...]] = ((4, 6),)) -> list[Any]:
    """Arrays of the dtypes, and numbers."""
    numbers = {"bool_": True, "int": 2, "float": 0.25}
    cycle = itertools.cycle(shapes)
    return [numbers[d] if d in numbers else some(Meta.of(next(cycle), d), n) for n, d in enumerate(dtypes)]


def call_of(op: OpDef, operands: Sequence[Any], attributes: Any) -> KernelCall:
    """A call as a plan has it."""
    metas = tuple([Meta.of(x.shape, x.dtype) if is_array(x) else type(x) for x in operands])
    frozen = op.freeze(attributes)
    return KernelCall(op, dict(frozen), metas, infer_once(op, metas, frozen), False, 0)


def untouched(*_: Any) -> None:
    """What is called in place of a generated kernel."""
    raise AssertionError("the generated kernel was not called")


@each_case(("op", "dtypes", "attributes"), SINGLE)
def test_an_op_that_cupy_computes_by_several_launches_is_one(
    host: Host, op: str, dtypes: tuple[str, ...], attributes: Any
) -> None:
    operands = operands_of(dtypes)
    call = call_of(find(op), operands, attributes)
    kernel = host.kernels.alone(call, untouched)
    assert kernel is not None
    host.cupy.launched.clear()
    (found,) = results_of(kernel, call, operands)
    assert len(host.cupy.launched) == 1  # the first call compiles it
    compare(call, operands, found)
    apart = [x.T if is_array(x) else x for x in operands]
    assert kernel.launch_of([*apart, found.T]) is None


def results_of(kernel: Any, call: KernelCall, operands: Sequence[Any]) -> list[Any]:
    """What a kernel computes."""
    outputs = [np.zeros(meta.shape, meta.dtype).view(HostArray) for meta in call.outputs if meta is not None]
    with np.errstate(all="ignore"):
        kernel(*operands, *outputs)
    return outputs


def compare(call: KernelCall, operands: Sequence[Any], found: Any) -> None:
    """What NumPy computes: the same, but for the sign of a zero, and the last digits of what is no elementary op."""
    (expected,) = results_of(call.op.bind(np, len(operands), call.attributes), call, operands)
    rtol = {"float32": 2e-6, "float64": 1e-13}.get(found.dtype.name, 0)
    with np.errstate(all="ignore"):
        close = np.isclose(found, expected, rtol=rtol, atol=1e-37, equal_nan=True)
    assert close.all(), (call.op.name, call.metas, operands, found, expected)


def test_each_op_that_is_one_kernel_computes_what_it_does_with_numpy(tmp_path: Path) -> None:
    """With the loops of CuPy itself, as many of them as the host's compiler takes."""
    cupy = KernelsOfCupy(tmp_path, Compiler.here().cupy)
    kernels = FusedKernels(cupy, lambda _work: None, nullcontext)
    found = []
    for op in (op for op in REGISTRY.values() if op.pointwise and op.inputs > 0 and "shift" not in op.name):
        for dtype in ("bool", "int8", "uint16", "int64", "float32", "float64"):
            dtypes = [*["bool"] * (op.name == "where"), *[dtype] * 3][: op.inputs]
            for attributes in ATTRIBUTES.get(op.name, [{}]):
                with suppress(TensordError):
                    operands = operands_of(dtypes)
                    if op.name == "reciprocal":  # of an integer 0 there is none
                        operands[0][operands[0] == 0] = 1
                    call = call_of(op, operands, attributes)
                    kernel = kernels.alone(call, untouched)
                    if kernel is not None and "_floor_divide(" not in kernel.source:  # which is in CuPy's header
                        found.append((kernel, call, operands))
    assert len(found) > 200
    cupy.compile([kernel.source for kernel, _, _ in found])
    for kernel, call, operands in found:
        compare(call, operands, *results_of(kernel, call, operands))


def test_cupy_has_the_loops_that_these_tests_have() -> None:
    cupy = Compiler.here().cupy
    for name, loops in LOOPS.items():
        known = {(tuple(each.in_types), tuple(each.out_types)): each.routine for each in getattr(cupy, name)._ops.ops}
        for taken, given, code in loops:
            assert known[dtypes(taken), dtypes(given)] == code, name


def test_kernels_of_all_ops_compile() -> None:
    compiler = Compiler.here()
    kernels = FusedKernels(compiler.cupy, lambda _work: None, nullcontext)
    blocks = [found[0] for name, dtype in OPS if (found := blocks_of(kernels, name, dtype))]
    assert {"gelu", "relu_grad", "floor_divide", "where", "round"} <= {
        line.op for each in blocks for line in each.lines
    }
    assert len(blocks) > 80
    compiler.compile([source_of(block) for block in blocks], "--fmad=false")


def test_the_machine_code_of_a_loop_that_is_fused_is_the_same_with_and_without_contractions() -> None:
    """CuPy compiles with them, fused kernels without."""
    compiler = Compiler.here()
    kernels = FusedKernels(compiler.cupy, lambda _work: None, nullcontext)
    blocks = [block for name in REGISTRY for dtype in NAMES for block in blocks_of(kernels, name, dtype)]
    loops = dict.fromkeys((line.name, line.loop) for block in blocks for line in block.lines)
    assert len(loops) > 200
    alone = [source_of_loop(loop) for _, loop in loops]
    joined, separate = compiler.compile(alone), compiler.compile(alone, "--fmad=false")
    pairs = zip(loops, joined, separate, strict=True)
    assert [(name, loop.taken) for (name, loop), one, other in pairs if one != other] == []


def source_of_loop(loop: Loop) -> str:
    """The source of a kernel that computes a loop for each element."""
    metas = [Meta.of((1000,), dtype) for dtype in loop.taken]
    return direct.source_of(loop, metas, JoinedAxes.of([(1000,)] * (len(metas) + 1)), "uint32")


def blocks_of(kernels: FusedKernels, name: str, dtype: str) -> list[Block]:
    """Blocks of an op alone, for a row, a column and a number beside a matrix; or for matrices."""
    op, found = find(name), []
    if not op.elementwise or op.inputs < 1:
        return []
    whole, row, column = (Meta.of(shape, dtype) for shape in ((6, 8), (8,), (6, 1)))
    number: Any = {"b": bool, "f": float}.get(whole.dtype.kind, int)
    condition = [Meta.of((6, 8), "bool")] if name == "where" else []
    for metas in ((whole, row, column), (row, whole, number), (column, number, whole), (whole, whole, whole)):
        for attributes in ATTRIBUTES.get(name, [{}]):
            with suppress(TensordError):
                program, fusion = alone(name, (*condition, *metas)[: op.inputs], attributes)
                if kernels.takes(program, program.steps[0]):
                    block = block_of(program, fusion, kernels.trace_of)
                    assert block is not None
                    found.append(block)
    return found


def test_empty_tensors_are_not_fused(host: Host) -> None:
    program = chain("multiply", "add", shape=(0,))
    assert not host.fusions(program)
