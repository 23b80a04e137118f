"""A block: what one generated kernel computes for each element, as lines that each call a loop (`loops`).

Values are named as in the kernel's source: `a0` is a tensor, `n0` a number, `v0` the result of a line, `r0` a result in
memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from ...interpreter.programs.fusion import Fusion
from ...interpreter.programs.program import Program, Step
from ...interpreter.types.joined_axes import JoinedAxes
from ...interpreter.types.meta import Meta
from .loops import Loop
from .traced import Constant, Operand, Trace

MOST_BYTES: Final = 3500  # of a kernel's parameters: CUDA has 4 KiB
ACCESS: Final = 16  # bytes that a thread reads or writes at once, at the most

Traces: TypeAlias = Callable[[Program, Step], Trace | None]


class Tensor(NamedTuple):
    """A tensor that a kernel reads or writes: its name, its place among the arguments, and along which axes it
    extends."""

    name: str
    place: int
    meta: Meta
    along: tuple[bool, ...]


class Number(NamedTuple):
    """A number that a kernel takes, of a dtype: the argument at a place, or a constant (-1)."""

    name: str
    dtype: Any
    place: int
    constant: Any = None


class Line(NamedTuple):
    """A call of a loop, for an op."""

    op: str
    name: str
    loop: Loop
    operands: tuple[str, ...]
    result: str


class Block(NamedTuple):
    """A kernel's tensors, numbers, lines, and for each output the tensor and the value. `axes`: those that are left of
    all tensors."""

    inputs: tuple[Tensor, ...]
    numbers: tuple[Number, ...]
    lines: tuple[Line, ...]
    outputs: tuple[tuple[Tensor, str], ...]
    axes: tuple[int, ...]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """What it reads and writes."""
        return (*self.inputs, *(tensor for tensor, _ in self.outputs))

    @property
    def wide(self) -> bool:
        """Does it take 64 bits to count its elements?"""
        return any(tensor.meta.nbytes >> 31 for tensor in self.tensors)

    @property
    def parameters(self) -> int:
        """Bytes of the kernel's parameters, at the most."""
        return 8 * (len(self.tensors) + len(self.numbers) + len(self.axes) + 2)

    @property
    def pack(self) -> int:
        """How many elements a thread may compute at once: as many of the widest dtype as one access takes."""
        widest = max(t.meta.dtype.itemsize for t in self.tensors if t.along[-1:] != (False,))
        return ACCESS // widest

    def is_packed(self, tensor: Tensor) -> bool:
        """Do neighbours of a result have neighbours in the tensor?"""
        return tensor.along[-1:] == (True,)

    def divides(self) -> bool:
        """Has the last axis a whole number of packs, if there are several axes? Then no pack goes beyond a row."""
        return len(self.axes) < 2 or self.axes[-1] % self.pack == 0

    def sizes(self) -> list[int]:
        """The elements of the last axes: of all, of all but the first, and so on."""
        return [math.prod(self.axes[n:]) for n in range(max(len(self.axes), 1))]


def block_of(program: Program, fusion: Fusion, traces: Traces) -> Block | None:
    """The block of a fusion; None if a kernel cannot take its parameters, or it makes nothing that anybody needs."""
    return Building(program, fusion).build(traces) if fusion.outputs else None


class Building:
    """Names values, and collects lines."""

    def __init__(self, program: Program, fusion: Fusion) -> None:
        self.program, self.fusion = program, fusion
        self.places = {operand: place for place, operand in enumerate(fusion.inputs)}
        self.names: dict[int, str] = {}
        self.numbers: dict[tuple[Any, ...], Number] = {}
        self.lines: list[Line] = []
        read = [(place, n) for place, n in enumerate(fusion.inputs) if n >= 0]
        metas = [self.meta(n) for _, n in read]
        made = [self.meta(n) for n in fusion.outputs]
        joined = JoinedAxes.of([meta.shape for meta in (*metas, *made)])
        self.axes = joined.lengths
        self.inputs = [Tensor(f"a{k}", place, metas[k], joined.along(k)) for k, (place, _) in enumerate(read)]
        first, offset = len(fusion.inputs), len(metas)
        self.outputs = [Tensor(f"r{k}", first + k, meta, joined.along(offset + k)) for k, meta in enumerate(made)]
        self.names.update((n, tensor.name) for (_, n), tensor in zip(read, self.inputs, strict=True))

    def meta(self, value: int) -> Meta:
        """The meta of a value, which a fusion's have."""
        meta = self.program.metas[value]
        if meta is None:
            raise AssertionError("a fusion has no pending values")
        return meta

    def build(self, traces: Traces) -> Block | None:
        """The block, if there is one."""
        for step in (self.program.steps[place] for place in self.fusion.steps):
            found = traces(self.program, step)
            if found is None:
                return None
            self.add(step, found)
        outputs = [(tensor, self.names[n]) for tensor, n in zip(self.outputs, self.fusion.outputs, strict=True)]
        numbers = tuple(self.numbers.values())
        block = Block(tuple(self.inputs), numbers, tuple(self.lines), tuple(outputs), self.axes)
        return block if block.parameters <= MOST_BYTES else None

    def add(self, step: Step, found: Trace) -> None:
        """The lines of a step."""
        results: list[str] = []
        for call in found.calls:
            pairs = zip(call.operands, call.loop.taken, strict=True)
            operands = tuple([self.name_of(step, results, operand, dtype) for operand, dtype in pairs])
            result = f"v{len(self.lines)}"
            self.lines.append(Line(step.op, call.name, call.loop, operands, result))
            results.append(result)
        self.names[step.first] = results[-1]

    def name_of(self, step: Step, results: list[str], operand: Operand, dtype: Any) -> str:
        """The name of a call's operand."""
        if isinstance(operand, Constant):
            return self.number(dtype, -1, operand.number)
        if operand >= 0:
            return results[operand]
        given = step.operands[~operand]
        return self.names[given] if given >= 0 else self.number(dtype, self.places[given])

    def number(self, dtype: Any, place: int, constant: Any = None) -> str:
        """The name of a number that is passed with that dtype."""
        if place < 0:
            constant = np.dtype(dtype).type(constant)
        key = (dtype.name, place, None if constant is None else constant.tobytes())
        found = self.numbers.get(key)
        if found is None:
            found = self.numbers[key] = Number(f"n{len(self.numbers)}", np.dtype(dtype), place, constant)
        return found.name
