"""Fusions that are drawn by a seed, with operands, and some that are written by hand."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from tensord.interpreter.errors import TensordError
from tensord.interpreter.programs.builder import Builder
from tensord.interpreter.programs.fusion import Fusion
from tensord.interpreter.programs.program import Program
from tensord.interpreter.types.meta import Meta

from .host_compiled import HostArray

SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, np.nan, np.inf, -np.inf, 1e-42, 3e38, 0.1]
UNARY = ("negative", "square", "sqrt", "exp", "tanh", "relu", "sigmoid", "silu", "isnan", "reciprocal", "astype")
BINARY = (
    *("add", "subtract", "multiply", "divide", "maximum", "minimum", "less", "greater", "equal"),
    *("relu_grad", "sigmoid_grad", "tanh_grad"),
)
SHAPES = ((6, 8), (6, 8), (6, 8), (6, 8), (8,), (6, 1), (1, 1), ())
LONGER = ((2, 3, 8), (2, 3, 8), (2, 3, 8), (3, 1), (2, 1, 8), (8,), (2, 1, 1), (1, 3, 8), ())
UNEVEN = ((5, 7), (5, 7), (5, 7), (7,), (5, 1), ())
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
    for position, n in enumerate(fusion.inputs):
        meta = program.metas[n] if n >= 0 else None
        number = program.numbers[~n] if n < 0 else None
        value = 0.3 if number is not None and number.op == "parameter" else None if number is None else number.value
        given.append(value if meta is None else some(meta, seed + position))
    for n, over in zip(fusion.outputs, fusion.over, strict=True):
        meta = program.metas[n]
        assert meta is not None
        given.append(given[over] if over >= 0 else np.zeros(meta.shape, meta.dtype).view(HostArray))
    return given


def copied(given: list[Any]) -> list[Any]:
    """Copies of the arrays; operands that are one array share one copy."""
    copies = {id(x): x.copy() for x in given if isinstance(x, np.ndarray)}
    return [copies.get(id(x), x) for x in given]


def away(given: list[Any]) -> list[Any]:
    """Copies of the arrays that are aligned neither for an access of 16 bytes nor for one of two elements."""
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
    """All NaNs count as one: their signs depend on the processor."""
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
