"""Fusions with reductions: pieces of whole rows, with the bits of their steps one by one."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import numpy as np

from tensord.interpreter.errors import TensordError
from tensord.interpreter.programs.builder import Builder
from tensord.interpreter.programs.fusion import Fusion, find_fusions
from tensord.interpreter.programs.program import Program
from tensord.interpreter.schema.opdef import UNCOUNTED_BYTES, find
from tensord.interpreter.types.meta import Meta
from tensord.streams.host.fused_kernel import PIECE_BYTES, FusedKernel

from ...each_case import each_case
from ...interpreter.programs.passes.conftest import Writer
from ...interpreter.programs.passes.random_programs import inputs_of
from ...interpreter.programs.passes.running import run
from .test_fused_kernel import short_buffers, some

ROW = {"axis": -1, "keepdims": True}


def softmax(*shape: int) -> tuple[Program, Fusion]:
    builder = Writer()
    x = builder.parameter(Meta.of(shape, "float32"))
    exp = builder.call("exp", builder.call("subtract", x, builder.call("max", x, **ROW)))
    return fused(builder, builder.call("divide", exp, builder.call("sum", exp, **ROW)))


def layer_norm(*shape: int) -> tuple[Program, Fusion]:
    builder = Writer()
    x, weight = builder.parameter(Meta.of(shape, "float32")), builder.parameter(Meta.of(shape[-1:], "float32"))
    spread = builder.call("sqrt", builder.call("add", builder.call("var", x, **ROW), builder.constant(1e-5)))
    centred = builder.call("subtract", x, builder.call("mean", x, **ROW))
    return fused(builder, builder.call("multiply", builder.call("divide", centred, spread), weight))


def sums(*shape: int) -> tuple[Program, Fusion]:
    """A program with results of all extents: of the shape, one a row, and one a row without the axes of the rows."""
    builder = Writer()
    x = builder.parameter(Meta.of(shape, "float32"))
    square = builder.call("square", x)
    half = builder.call("multiply", builder.call("sum", square, **ROW), builder.constant(0.5))
    return fused(builder, square, half, builder.call("max", square, axis=-1), builder.call("argmax", x, axis=-1))


def fused(builder: Builder, *results: int) -> tuple[Program, Fusion]:
    program = builder.finish(list(results))
    (fusion,) = find_fusions(program, least=1)
    assert len(fusion.steps) == len(program.steps)
    return program, fusion


FUNCTIONS = [softmax, layer_norm, sums]


def given_to(program: Program, fusion: Fusion, loose: bool = False) -> tuple[list[Any], list[np.ndarray]]:
    """Arrays and numbers for a fusion's inputs, the first of the arrays not packed if wanted; and its outputs."""
    inputs: list[Any] = []
    for seed, n in enumerate(fusion.inputs):
        meta = program.metas[n] if n >= 0 else None
        inputs.append(program.numbers[~n].value if meta is None else some("float32", *meta.shape, seed=seed))
    if loose:
        inputs[0] = np.asfortranarray(inputs[0])
    outputs = [np.zeros(meta.shape, meta.dtype) for n in fusion.outputs if (meta := program.metas[n]) is not None]
    return inputs, outputs


def one_by_one(program: Program, fusion: Fusion, inputs: list[Any]) -> list[np.ndarray]:
    """The outputs that the steps give one after the other."""
    known = dict(zip(fusion.inputs, inputs, strict=True))
    for step in program.steps:
        meta = program.metas[step.first]
        assert meta is not None
        known[step.first] = np.zeros(meta.shape, meta.dtype)
        kernel = step_kernel(step)
        kernel(*[known[n] for n in step.operands], known[step.first])
    return [known[n] for n in fusion.outputs]


def step_kernel(step: Any) -> Any:
    return find(step.op).bind(np, len(step.operands), dict(step.attributes))


def seen(arrays: list[np.ndarray], loose: bool) -> list[bytes]:
    """The bits; of operands that are not packed, NaNs may have other signs."""
    if loose:
        arrays = [np.where(np.isnan(each), np.float32(np.nan), each) for each in arrays]
    return [each.tobytes() for each in arrays]


@each_case("loose", [False, True])
@each_case("shape", [(40, 1000), (300, 129), (5, 7, 1030), (9, 2, 4096)])
@each_case("function", FUNCTIONS)
def test_pieces_of_rows_get_the_bits_of_the_steps_one_by_one(
    function: Any, shape: tuple[int, ...], loose: bool
) -> None:
    program, fusion = function(*shape)
    inputs, outputs = given_to(program, fusion, loose)
    with np.errstate(all="ignore"):
        FusedKernel(program, fusion, 2048)(*inputs, *outputs)
        expected = one_by_one(program, fusion, inputs)
    assert seen(outputs, loose) == seen(expected, loose)


@each_case("function", FUNCTIONS)
def test_threads_may_share_the_rows(function: Any) -> None:
    program, fusion = function(90, 1000)
    inputs, outputs = given_to(program, fusion)
    parts = FusedKernel(program, fusion, 2048).split(3)
    with ThreadPoolExecutor(3, initializer=lambda: np.seterr(all="ignore")) as threads:
        list(threads.map(lambda part: part(*inputs, *outputs), parts))
    with np.errstate(all="ignore"):
        expected = one_by_one(program, fusion, inputs)
    assert seen(outputs, False) == seen(expected, False)


def test_what_has_one_element_a_row_takes_scratch_for_that() -> None:
    program, fusion = layer_norm(4000, 1000)
    kernel = FusedKernel(program, fusion)
    assert 0 < kernel.scratch < PIECE_BYTES


def test_scratch_counts_what_kernels_take_for_pieces_that_cannot_be_shorter() -> None:
    """A piece has two rows at least; the variance of these has temporaries of their size."""
    builder = Writer()
    x = builder.parameter(Meta.of((8, 1 << 16), "float64"))
    program, fusion = fused(builder, builder.call("std", x, axis=-1), builder.call("max", x, axis=-1))
    assert FusedKernel(program, fusion).scratch >= 2 * UNCOUNTED_BYTES


def by_rows(seed: int) -> Program:
    """A program with reductions of rows among steps on whole tensors, of one element a row, and writes in place."""
    rng, builder = random.Random(seed), Builder()
    rows, width = rng.choice([(12, 9), (4, 4)]) if rng.random() < 0.8 else (30, 2)
    shapes = [(rows, width)] * 3 + [(rows, 1)] * 2 + [(width,), (1, width), (rows,)]
    values = [builder.parameter(Meta.of(shape, rng.choice(["float32", "float64"]))) for shape in shapes]
    for _ in range(45):
        name = rng.choice(
            ["sum", "max", "mean", "argmax", "any", "var"] * 2 + ["add", "multiply", "less", "where", "exp"] * 3
        )
        into: list[int] | None = None
        if name in ("sum", "max", "mean", "argmax", "any", "var"):
            operands = [rng.choice(values[-8:])]
            attributes = {"axis": rng.choice([-1, -1, -1, 0]), "keepdims": rng.random() < 0.7}
        else:
            operands = [rng.choice(values[-10:]) for _ in range({"where": 3, "exp": 1}.get(name, 2))]
            attributes, into = {}, [rng.choice(values)] if rng.random() < 0.2 else None
        with suppress(TensordError):
            (made,) = builder.op(name, operands, attributes, into=into)
            values = [value for value in values if into is None or value != into[0]] + [made]
    inside = [value for value in values if builder.variables[value] >= len(shapes)]
    return builder.finish(rng.sample(inside, min(len(inside), 4)))


def test_random_programs_have_reductions_in_their_fusions() -> None:
    found = [fusion for seed in range(60) for fusion in find_fusions(by_rows(seed), least=1)]
    reducing = [fusion for fusion in found if fusion.rows < len(fusion.shape)]
    assert len(reducing) > 40
    assert sum(len(fusion.steps) > 3 for fusion in reducing) > 10
    assert sum(max(fusion.over, default=-1) >= 0 for fusion in reducing) > 0


@each_case("seed", range(60))
def test_a_program_with_reductions_does_what_it_does_step_by_step(seed: int) -> None:
    program = by_rows(seed)
    inputs = inputs_of(program, seed)
    fusions = {fusion: FusedKernel(program, fusion, 7) for fusion in find_fusions(program, least=1)}
    with short_buffers():
        assert run(program, inputs, fusions=fusions) == run(program, inputs)
