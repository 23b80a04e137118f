"""Random programs for the passes: small, full of repetitions, dead results, failing ops, views, moves and effects."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import numpy as np

from tensord.interpreter.errors import TensordError
from tensord.interpreter.programs.builder import Builder
from tensord.interpreter.programs.numbers import ARITHMETIC, CONSTANT, DRAW, PARAMETER, SEED
from tensord.interpreter.programs.program import Program
from tensord.interpreter.types.meta import Meta

from .running import Placed, placed, strided

SHAPES = ((4, 4), (4, 4), (4, 4), (4, 1), (4,), ())
DTYPES = ("float16", "float16", "float32", "int32", "bool")
DEVICES = (0, 0, 0, 1)
POINTWISE = (
    *(["add", "subtract", "multiply", "maximum", "less", "where", "power", "floor_divide"]),
    *(["asin", "log10", "sqrt", "exp", "negative", "isnan", "logical_not"]),
)
INTO = ("add", "multiply", "astype", "negative")
OTHERS: tuple[tuple[str, int, tuple[dict[str, Any], ...]], ...] = (
    ("astype", 1, ({"dtype": "float32"}, {"dtype": "float16"}, {"dtype": "int32"})),
    ("transpose", 1, ({},)),
    ("flip", 1, ({"axis": 0},)),
    ("getitem", 1, ({"index": (("slice", None, None, -1),)}, {"index": (1,)})),
    ("reshape", 1, ({"shape": (16,)}, {"shape": (4, 4)})),
    ("sum", 1, ({"axis": 0}, {"axis": None})),
    ("matmul", 2, ({},)),
    ("inv", 1, ({},)),
    ("take", 2, ({"axis": 0},)),
    ("masked_select", 2, ({},)),
    ("zeros", 0, ({"shape": (4, 4), "dtype": "float16"},)),
)
NUMBERS = (("int", 2), ("int", -1), ("float", 0.5), ("float", -0.0), ("float", 0.0), ("bool", True), ("int", 1))
VALUES = np.array([0.0, -0.0, 1.0, -1.0, 0.5, 0.3, -0.7, np.nan, np.inf, 2.0, 3.0, 100.0])


class Maker:
    """Makes one program from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.builder = Builder()
        self.issued: list[tuple[Any, ...]] = []
        self.location = 0

    def program(self, steps: int) -> Program:
        for n in range(4):
            self.builder.parameter(self.meta(), self.random.choice(DEVICES), f"p{n}")
        for _ in range(2):
            self.builder.captured(self.meta(), self.random.choice(DEVICES))
        for kind in ("int", "float"):
            self.builder.number(kind, PARAMETER)
        self.builder.number("int", SEED)
        for _ in range(steps):
            self.attempt()
        return self.builder.finish(self.results())

    def attempt(self) -> None:
        self.location += 1
        choices = [self.pointwise] * 6 + [self.other] * 4 + [self.into] * 2 + [self.again] * 5
        choices += [self.move] * 3 + [self.number] * 3 + [self.risky] * 2 + [self.effect, self.draw]
        with suppress(TensordError):
            self.random.choice(choices)()

    def meta(self) -> Meta:
        return Meta.of(self.random.choice(SHAPES), self.random.choice(DTYPES))

    def newest(self) -> list[int]:
        return [value for value, variable in enumerate(self.builder.variables) if self.is_newest(value, variable)]

    def is_newest(self, value: int, variable: int) -> bool:
        return self.builder.newest[variable] == value

    def tensor(self) -> int:
        """A value that can be read, preferably a late one."""
        values = self.newest()
        return self.random.choice(values[-8:] if self.random.random() < 0.6 else values)

    def operand(self) -> int:
        if self.random.random() < 0.3:
            count = len(self.builder.numbers)
            return ~self.random.randrange(max(0, count - 6), count)
        return self.tensor()

    def issue(self, what: str, *arguments: Any) -> None:
        getattr(self.builder, what)(*arguments, location=self.location)
        self.issued.append((what, *arguments))

    def pointwise(self) -> None:
        name = self.random.choice(POINTWISE)
        count = {"where": 3, "power": 2, "floor_divide": 2}.get(name, 1 if name in POINTWISE[8:] else 2)
        self.issue("op", name, [self.operand() for _ in range(count)], {}, self.random.choice(DEVICES))

    def other(self) -> None:
        name, count, attributes = self.random.choice(OTHERS)
        operands = [self.tensor() for _ in range(count)]
        self.issue("op", name, operands, self.random.choice(attributes), self.random.choice(DEVICES))

    def risky(self) -> None:
        """An op that fails on some data."""
        metas = {value: meta for value in self.newest() if (meta := self.builder.metas[value]) is not None}
        integers = [value for value, meta in metas.items() if meta.dtype.kind == "i"]
        matrices = [value for value, meta in metas.items() if meta.dtype == "float32" and meta.shape == (4, 4)]
        if integers and self.random.random() < 0.6:
            chosen = self.random.choice(integers)
            name, attributes = self.random.choice([("power", {}), ("take", {"axis": 0})])
            self.issue("op", name, [self.random.choice((chosen, self.tensor())), chosen], attributes, 0)
        elif matrices:
            self.issue("op", "inv", [self.random.choice(matrices)], {}, 0)

    def into(self) -> None:
        name, target = self.random.choice(INTO), self.tensor()
        dtype = self.builder.metas[target]
        attributes = {"dtype": dtype.dtype.name} if name == "astype" and dtype else {}
        operands = [self.random.choice((target, self.operand())) for _ in range(2 if name in INTO[:2] else 1)]
        self.issue("op", name, operands, attributes, self.builder.homes[target], [target])

    def again(self) -> None:
        """Repeat a step, or repeat it with other operands."""
        self.issue(*self.random.choice(self.issued[-10:]) if self.issued else ("move", 0, 0))

    def move(self) -> None:
        self.issue("move", self.tensor(), self.random.choice((0, 1)))

    def number(self) -> None:
        builder, choice = self.builder, self.random.random()
        if choice < 0.5:
            kind, value = self.random.choice(NUMBERS)
            builder.number(kind, CONSTANT, (), value)
        else:
            op = self.random.choice(["add", "sub", "mul", "neg"])
            slots = [self.random.randrange(len(builder.numbers)) for _ in range(ARITHMETIC[op][0])]
            kind = builder.numbers[slots[0]].kind
            if all(builder.numbers[slot].kind == kind != "bool" for slot in slots):
                builder.number(kind, op, slots)

    def draw(self) -> None:
        slot = self.builder.number("int", DRAW)
        self.issue("op", "uniform", [~2, ~slot], {"shape": (4, 4), "dtype": "float16"}, 0)

    def effect(self) -> None:
        if self.random.random() < 0.5:
            self.issue("print", ["x =", None], [self.tensor()])
        else:
            self.issue("effect", 0, [self.tensor()])

    def results(self) -> list[int]:
        inside = [value for value in self.newest() if self.builder.variables[value] >= 6]
        return self.random.sample(inside, min(len(inside), self.random.randrange(1, 6)))


def inputs_of(program: Program, seed: int) -> list[Placed]:
    """Tensors for a run, with special values, packed and strided."""
    rng = np.random.default_rng(seed)
    found = []
    for source in (*program.parameters, *program.captured):
        values = rng.choice(VALUES, source.meta.shape)
        with np.errstate(all="ignore"):
            array = np.asarray(np.nan_to_num(values) if source.meta.dtype.kind in "iu" else values)
            found.append((strided if rng.random() < 0.4 else placed)(array.astype(source.meta.dtype)))
    return found
