"""Fusions on NumPy arrays: the bits of their steps one by one, for any borders of the pieces."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from typing import Any

import numpy as np
import pytest

from tensord.interpreter.errors import TensordError
from tensord.interpreter.programs.builder import Builder
from tensord.interpreter.programs.fusion import Fusion, find_fusions
from tensord.interpreter.programs.program import Program
from tensord.interpreter.schema.opdef import REGISTRY, UNCOUNTED_BYTES, OpDef, find
from tensord.interpreter.types.meta import DTYPES, Meta
from tensord.streams.host import fused_kernel
from tensord.streams.host.fused_kernel import (
    GRAIN,
    MAX_SCRATCH_BLOCKS,
    MAX_SCRATCH_BYTES,
    PIECE_BYTES,
    FusedKernel,
    slices_of,
)
from tensord.streams.host.fused_layout import FusedExtent, FusedLayout, ScratchPart

from ...each_case import each_case
from ...interpreter.conftest import meta_of
from ...interpreter.programs.passes.random_programs import Maker, inputs_of
from ...interpreter.programs.passes.running import bits, run

POINTWISE = sorted(name for name, op in REGISTRY.items() if op.pointwise and op.total is not False)
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, np.nan, np.inf, -np.inf, 2.0, 0.3, -0.7, 1e-3, 3.0]
ATTRIBUTES: dict[str, list[dict[str, Any]]] = {
    "astype": [{"dtype": name} for name in DTYPES],
    "cast": [{"dtype": name} for name in ("float16", "int8")],
    "gelu": [{"approximate": "tanh"}, {"approximate": "none"}],
    "gelu_grad": [{"approximate": "none"}],
}


def some(dtype: str, *shape: int, seed: int = 0) -> np.ndarray:
    """Ordinary and special values."""
    rng = np.random.default_rng(seed)
    kind = DTYPES[dtype].kind
    if kind in "biu":
        return rng.integers(0, 2 if kind == "b" else 100, shape).astype(dtype)
    values = np.where(rng.random(shape) < 0.4, rng.choice(SPECIAL, shape), rng.normal(size=shape))
    if kind == "c":
        return np.stack([values, rng.choice(SPECIAL, shape)], -1).view(complex)[..., 0].astype(dtype)
    return values.astype(dtype)


@cache
def layouts(dtype: str, count: int) -> list[list[Any]]:
    """Like `each_layout`, made once for all ops: tests only read them."""
    return list(each_layout(dtype, count))


def each_layout(dtype: str, count: int) -> Iterator[list[Any]]:
    """Operands of one op: packed, strided, broadcasting, in another order, of no dimension, and numbers."""
    for shape in ((23,), (5, 7), (7, 5, 1), (2, 1, 9)):
        yield [some(dtype, *shape, seed=seed) for seed in range(count)]
    yield [some(dtype, 99, 2, seed=seed)[:, 0] for seed in range(count)]
    yield [some(dtype, 99, seed=seed)[::-1] for seed in range(count)]
    yield [some(dtype, 23, 18, seed=seed)[:, ::2] for seed in range(count)]
    yield [some(dtype, 23, 18, seed=seed)[:, ::-2] for seed in range(count)]
    yield [some(dtype, 9, 23).T, *[some(dtype, 23, 9, seed=seed) for seed in range(1, count)]]
    yield [some(dtype, 5, 4, 11).transpose(2, 0, 1), *[some(dtype, 11, 5, 4, seed=seed) for seed in range(1, count)]]
    if count > 1:
        whole = [some(dtype, 23, 9, seed=seed) for seed in range(count - 1)]
        for other in (some(dtype, 9), some(dtype, 23, 1), some(dtype), some(dtype, 1, 1), number_of(dtype)):
            yield [*whole, other]
            yield [other, *whole]
        yield [some(dtype, 3, 1, 50, seed=1), *[some(dtype, 1, 4, 50)] * (count - 1)]


@contextmanager
def short_buffers() -> Iterator[None]:
    """NumPy's buffers as short as they may be, so that pieces may be short, too."""
    before = np.setbufsize(16)
    yield
    np.setbufsize(before)


def number_of(dtype: str) -> Any:
    return {"b": True, "i": 3, "u": 3, "f": 0.5, "c": 0.5 - 1j}[DTYPES[dtype].kind]


def fusion_of(op: OpDef, operands: list[Any], attributes: dict[str, Any]) -> tuple[Program, Fusion] | None:
    """A program of one fusion that returns the op's result, and another value computed from it."""
    builder = Builder()
    try:
        values = [builder.parameter(meta_of(x)) if isinstance(x, np.ndarray) else -1 for x in operands]
        for position, operand in enumerate(operands):
            if values[position] < 0:
                values[position] = ~builder.number(type(operand).__name__, "constant", (), operand)
        (result,) = builder.op(op.name, values, attributes)
        (equal,) = builder.op("equal", [result, result])
    except TensordError:
        return None
    program = builder.finish([result, equal])
    fusions = find_fusions(program, least=1)
    return (program, fusions[0]) if fusions else None


@each_case("name", POINTWISE)
def test_a_pointwise_op_gives_in_pieces_what_it_gives_at_once(name: str) -> None:
    op, ran = find(name), 0
    attributes, start = itertools.cycle(ATTRIBUTES.get(name, [{}])), POINTWISE.index(name)
    for turn, dtype in enumerate(DTYPES, start):  # each op has other layouts for its dtypes: together all are there
        found = layouts(dtype, op.least_operands())
        operands = list(found[turn // 2 % 4 if turn % 2 else 4 + turn // 2 % (len(found) - 4)])
        if name == "where" and isinstance(operands[0], np.ndarray):
            operands[0] = operands[0].astype(bool)
        ran += compare(op, operands, next(attributes), (2, 3, 7, 12)[turn % 4], short_buffers)
    assert ran


@each_case(
    ("name", "dtype"),
    [("asin", "float16"), ("log10", "float16"), ("asin", "float32"), ("power", "float32"), ("square", "complex64")],
)
def test_ops_whose_bits_depend_on_strides_get_pieces_with_the_strides_of_the_whole(name: str, dtype: str) -> None:
    op = find(name)
    for operands in loose_layouts(dtype, op.inputs):
        assert compare(op, operands, {}, GRAIN)


def loose_layouts(dtype: str, count: int) -> Iterator[list[Any]]:
    """Operands that are longer than NumPy's buffers, with short and with long inner axes, packed in no case."""
    for inner in (2, 9, 700):
        outer = 40_000 // inner
        yield [some(dtype, outer, 2 * inner, seed=seed)[:, ::2] for seed in range(count)]
        yield [some(dtype, outer, 2 * inner, seed=seed)[:, ::-2] for seed in range(count)]
        yield [some(dtype, outer, inner, seed=seed)[::-1] for seed in range(count)]
        yield [some(dtype, inner, outer).T, *[some(dtype, outer, inner, seed=seed) for seed in range(1, count)]]
        yield [some(dtype, inner, outer, seed=seed).T for seed in range(count)]
        yield [some(dtype, outer, inner, seed=seed).T for seed in range(count)]
        yield [some(dtype, inner, 2 * outer, seed=seed)[:, ::-2] for seed in range(count)]
        stacked = [some(dtype, outer // 2, 2, inner, seed=seed).transpose(1, 0, 2) for seed in range(count)]
        yield stacked
        yield [each.transpose(1, 2, 0) for each in stacked]


def compare(
    op: OpDef, operands: list[Any], attributes: dict[str, Any], length: int, buffers: Callable[..., Any] = nullcontext
) -> int:
    """Check that the op's bits in pieces are those of the whole; returns 0 if it does not take these operands."""
    found = fusion_of(op, operands, attributes)
    if found is None:
        return 0
    program, fusion = found
    outputs = [np.zeros(meta.shape, meta.dtype) for n in fusion.outputs if (meta := program.metas[n]) is not None]
    expected = np.zeros_like(outputs[0])
    with np.errstate(all="ignore"), buffers():
        find(op.name).bind(np, len(operands), dict(op.freeze(attributes)))(*operands, expected)
        tensors = [operand for operand in operands if isinstance(operand, np.ndarray)]
        numbers = [operand for operand in operands if not isinstance(operand, np.ndarray)]
        given = [tensors[n] if n >= 0 else numbers[~n] for n in fusion.inputs]
        for kernel in FusedKernel(program, fusion, length).split(3):
            kernel(*given, *outputs)
    shown = np.ndarray.tobytes if buffers is nullcontext else bits  # in pieces this short, signs of NaN may differ
    assert shown(outputs[0]) == shown(expected), (meta_of(operands[0]), length)
    assert outputs[1].tobytes() == np.equal(expected, expected).tobytes()
    return 1


@each_case("seed", range(40))
def test_a_program_in_fusions_does_what_it_does_step_by_step(seed: int) -> None:
    program = Maker(seed).program(80)
    inputs = inputs_of(program, seed)
    with short_buffers():
        expected = run(program, inputs, (3, 0.25), seed)
        for length in (2, 5):
            fusions = {fusion: FusedKernel(program, fusion, length) for fusion in find_fusions(program, least=1)}
            assert run(program, inputs, (3, 0.25), seed, fusions) == expected


def test_random_programs_have_fusions() -> None:
    programs = [Maker(seed).program(80) for seed in range(40)]
    fusions = [fusion for program in programs for fusion in find_fusions(program, least=1)]
    assert len(fusions) > 40
    assert sum(bool(fusion.virtual) for fusion in fusions) > 10
    assert sum(max(fusion.over, default=-1) >= 0 for fusion in fusions) > 5


def dense(seed: int) -> Program:
    """A program of one or few fusions, with many values alive at a time, of several dtypes, some written in place."""
    rng, builder = random.Random(seed), Builder()
    values = [builder.parameter(Meta.of((60,), dtype)) for dtype in ("float32", "float64", "float16", "float32")]
    for _ in range(24):
        name = rng.choice(["add", "multiply", "subtract", "maximum", "less", "where", "astype", "sqrt", "exp"])
        operands = [rng.choice(values[-10:]) for _ in range(find(name).inputs)]
        into = [rng.choice(values)] if rng.random() < 0.25 else None
        attributes = {"dtype": rng.choice(["float32", "float64"])} if name == "astype" else {}
        with suppress(TensordError):
            (made,) = builder.op(name, operands, attributes, into=into)
            values = [value for value in values if into is None or value != into[0]] + [made]
    inside = [value for value in values if builder.variables[value] >= 4]
    return builder.finish(rng.sample(inside, min(len(inside), 3)))


@each_case("seed", range(60))
def test_values_that_live_at_a_time_do_not_disturb_each_other(seed: int) -> None:
    program = dense(seed)
    inputs = inputs_of(program, seed)
    fusions = {fusion: FusedKernel(program, fusion, 7) for fusion in find_fusions(program, least=1)}
    with short_buffers():
        assert run(program, inputs, fusions=fusions) == run(program, inputs)


@each_case("dtype", ["float16", "float32", "float64"])
def test_pieces_of_packed_arrays_keep_the_signs_of_nan(dtype: str) -> None:
    rng, builder, size = np.random.default_rng(0), Builder(), 60_000
    given = [np.copysign(rng.choice([np.nan, 1.0], size), rng.choice([-1, 1], size)).astype(dtype) for _ in range(2)]
    operands = [builder.parameter(meta_of(each)) for each in given]
    program = builder.finish([builder.op(name, operands)[0] for name in ("add", "multiply", "maximum", "subtract")])
    (fusion,) = find_fusions(program, least=1)
    whole, pieces = ([np.zeros(size, dtype) for _ in fusion.outputs] for _ in range(2))
    with np.errstate(all="ignore"):
        for length, outputs in ((1 << 20, whole), (GRAIN, pieces)):
            FusedKernel(program, fusion, length)(*[given[n] for n in fusion.inputs], *outputs)
    assert [each.tobytes() for each in whole] == [each.tobytes() for each in pieces]


def chain(*ops: str, dtype: str = "float32", shape: tuple[int, ...] = (50_000,)) -> tuple[Program, Fusion]:
    """A program that applies the ops one after the other to its parameter, and to it again where they take two."""
    builder = Builder()
    value = first = builder.parameter(Meta.of(shape, dtype))
    for name in ops:
        value = builder.op(name, [value, first][: find(name).inputs])[0]
    program = builder.finish([value])
    (fusion,) = find_fusions(program, least=1)
    return program, fusion


def test_temporaries_of_one_dtype_lie_in_the_output() -> None:
    program, fusion = chain("add", "exp", "multiply", "subtract")
    layout = FusedLayout(program, fusion, lend=True)
    assert (layout.temporaries, layout.parts) == ([], [])
    assert FusedLayout(program, fusion, lend=False).parts == [ScratchPart(4, FusedExtent.WHOLE)]


def test_temporaries_that_are_wider_than_the_output_lie_in_scratch_of_a_piece() -> None:
    builder = Builder()
    x = builder.parameter(Meta.of((500_000,), "float32"))
    (wide,) = builder.op("astype", [x], {"dtype": "float64"})
    (mask,) = builder.op("less", [wide, ~builder.number("float", "constant", (), 0.5)])
    program = builder.finish([mask])
    (fusion,) = find_fusions(program)
    assert 0 < FusedKernel(program, fusion).scratch < 1 << 20


@each_case("shape", [(), (1,), (1, 1), (2,), (1, 2)])
def test_scratch_has_the_dimensions_of_tensors_with_one_element(shape: tuple[int, ...]) -> None:
    builder = Builder()
    x = builder.parameter(Meta.of(shape, "float32"))
    (wide,) = builder.op("astype", [x], {"dtype": "float64"})
    (mask,) = builder.op("less", [wide, ~builder.number("float", "constant", (), 0.5)])
    program = builder.finish([mask])
    (fusion,) = find_fusions(program, least=1)
    found = np.zeros(shape, bool)
    FusedKernel(program, fusion)(np.zeros(shape, np.float32), *[0.5 for n in fusion.inputs if n < 0], found)
    assert found.all()


def test_an_output_that_is_not_packed_gets_what_packed_ones_get() -> None:
    program, fusion = chain("negative", "log10", "add", dtype="float16", shape=(28_000,))
    x = some("float16", 28_000)
    packed, spread = np.zeros(28_000, np.float16), np.zeros(56_000, np.float16)[::2]
    with np.errstate(all="ignore"):
        for out in (packed, spread):
            FusedKernel(program, fusion)(x, out)
        assert packed.tobytes() == spread.tobytes() == (np.log10(-x) + x).tobytes()


def test_a_fusion_may_be_computed_by_several_threads() -> None:
    program, fusion = chain("add", "exp", "multiply", "subtract")
    x = some("float32", 50_000) / 8
    expected, found = np.zeros_like(x), np.zeros_like(x)
    with np.errstate(all="ignore"):
        FusedKernel(program, fusion)(x, expected)
    parts = FusedKernel(program, fusion).split(3)
    assert len(parts) == 3
    with ThreadPoolExecutor(3, initializer=lambda: np.seterr(all="ignore")) as threads:
        list(threads.map(lambda part: part(x, found), parts))
    assert found.tobytes() == expected.tobytes()


def test_a_call_has_scratch_of_its_own() -> None:
    """The situation of another thread that calls the same kernel between two steps."""
    program, fusion = chain("add", "less", "logical_not", shape=(5000,))
    kernel = FusedKernel(program, fusion, GRAIN)
    x, y = some("float32", 5000), some("float32", 5000, seed=1)
    expected, found, other = (np.zeros(5000, bool) for _ in range(3))
    with np.errstate(all="ignore"):
        kernel(x, expected)
        calls = FusedLayout(program, fusion, lend=True).calls
        cut = kernel._flat
        assert cut is not None
        less = calls[1].kernel

        def interrupted(*arrays: Any) -> None:
            cut.layout.calls[1] = calls[1]
            kernel(y, other)
            less(*arrays)

        cut.layout.calls[1] = calls[1]._replace(kernel=interrupted)
        kernel(x, found)
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize(("number", "converted"), [(3, np.ndarray), (1000, int)])
def test_a_number_is_converted_once_and_not_by_the_call_of_each_piece(number: int, converted: type) -> None:
    """A number that the dtype does not hold stays: NumPy compares such a number all the same."""
    builder = Builder()
    x = builder.parameter(Meta.of((5000,), "uint8"))
    (mask,) = builder.op("less", [x, ~builder.number("int", "parameter")])
    program = builder.finish(builder.op("logical_not", [mask]))
    (fusion,) = find_fusions(program, least=1)
    kernel = FusedKernel(program, fusion, GRAIN)
    given = []
    cut = kernel._flat
    assert cut is not None

    def less(x: Any, number: Any, out: Any) -> None:
        given.append(number)
        np.less(x, number, out)

    cut.layout.calls[0] = cut.layout.calls[0]._replace(kernel=less)
    array = np.arange(5000).astype(np.uint8)
    out = np.zeros(5000, bool)
    kernel(array, number, out)
    assert out.tobytes() == (array >= number).tobytes()
    assert len(given) == 5
    assert len({id(each) for each in given}) == 1
    assert type(given[0]) is converted


def test_parts_of_the_scratch_are_aligned() -> None:
    builder = Builder()
    x = builder.parameter(Meta.of((3 * GRAIN + 1,), "float32"))
    (mask,) = builder.op("isnan", [x])
    (wide,) = builder.op("astype", [x], {"dtype": "float64"})
    (chosen,) = builder.op("where", [mask, wide, ~builder.number("float", "constant", (), 0.5)])
    program = builder.finish(builder.op("less", [chosen, wide]))
    (fusion,) = find_fusions(program, least=1)
    cut = FusedKernel(program, fusion, GRAIN)._flat
    assert cut is not None
    assert len(cut.offsets) > 2
    assert all(offset % 64 == 0 for offset in cut.offsets)


def test_a_fusion_writes_in_place() -> None:
    builder = Builder()
    w, g = (builder.parameter(Meta.of((3000,), "float32")) for _ in range(2))
    (step,) = builder.op("multiply", [g, ~builder.number("float", "parameter")])
    builder.op("subtract", [w, step], into=[w])
    program = builder.finish([])
    (fusion,) = find_fusions(program, least=1)
    assert (fusion.virtual, fusion.over) == ((2,), (fusion.inputs.index(w),))
    weights, gradient = some("float32", 3000), some("float32", 3000, seed=1)
    with np.errstate(all="ignore"):
        expected = weights - gradient * np.float32(0.1)
        given = {w: weights, g: gradient, -1: 0.1}
        for part in FusedKernel(program, fusion, GRAIN).split(2):
            part(*[given[n] for n in fusion.inputs], weights)
    assert weights.tobytes() == expected.tobytes()


def test_kernels_with_temporaries_get_pieces_whose_temporaries_nobody_notices() -> None:
    program, fusion = chain("gelu", "add", dtype="float64", shape=(1_000_000,))
    kernel = FusedKernel(program, fusion)
    meta = Meta.of((kernel._length,), "float64")
    assert find("gelu").temporaries((meta,), (meta,), {"approximate": "tanh"}) <= UNCOUNTED_BYTES
    assert kernel._length % GRAIN == 0


@each_case("shape", [(), (1,), (1, 1), (0, 3), (0,)])
def test_a_fusion_of_one_element_or_none_has_temporaries_of_that_shape(shape: tuple[int, ...]) -> None:
    builder = Builder()
    x = builder.parameter(Meta.of(shape, "int32"))
    (largest,) = builder.op("maximum", [x, x])
    program = builder.finish(builder.op("equal", [largest, x]))
    (fusion,) = find_fusions(program, least=0)
    output = np.zeros(shape, bool)
    FusedKernel(program, fusion)(np.full(shape, -2, "int32"), output)
    assert output.all()


@each_case("step", [2, 3, 7])
def test_no_piece_has_one_element(step: int) -> None:
    for size in range(2, 30):
        pieces = [list(range(size))[each] for each in slices_of(size, step)]
        assert min(map(len, pieces)) > 1
        assert max(map(len, pieces)) <= step + 1
        assert [*itertools.chain(*pieces)] == list(range(size))


def test_what_kernels_keep_between_calls_is_bounded_for_all_of_them_together() -> None:
    sizes = [1, *[PIECE_BYTES] * MAX_SCRATCH_BLOCKS, 2 * PIECE_BYTES, MAX_SCRATCH_BYTES + 1]
    scratch = [fused_kernel.take_scratch(size) for size in sizes]
    assert all(memory.size >= size for memory, size in zip(scratch, sizes, strict=True))
    for memory in scratch:
        fused_kernel.return_scratch(memory)
    assert len(fused_kernel.SPARE_SCRATCH) == MAX_SCRATCH_BLOCKS
    assert max(memory.size for memory in fused_kernel.SPARE_SCRATCH) <= MAX_SCRATCH_BYTES


def test_a_kernel_uses_the_scratch_of_another_again() -> None:
    fused_kernel.SPARE_SCRATCH.clear()
    memory = fused_kernel.take_scratch(10)
    fused_kernel.return_scratch(memory)
    assert fused_kernel.take_scratch(PIECE_BYTES) is memory
