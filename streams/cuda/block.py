"""A block: what one generated kernel computes for each element. Each of its lines calls a loop (`loops`).

Values are named as in the kernel's source: `a0` is a tensor, `n0` a number, `v0` the result of a line, `r0` a result in
memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from ...interpreter.programs.fusion import Fusion
from ...interpreter.programs.program import Program, Step
from ...interpreter.types.joined_axes import JoinedAxes
from ...interpreter.types.meta import Meta
from ..device import KernelCall
from .loops import UfuncLoop
from .traced import Constant, KernelTrace, Operand

MAX_PARAMETER_BYTES: Final = 3500  # of a kernel's parameters: CUDA has 4 KiB
ACCESS_BYTES: Final = 16  # the most bytes that a thread reads or writes at once

Traces: TypeAlias = Callable[[Program, Step], KernelTrace | None]
Given: TypeAlias = str | int  # the name of a value, or the position of a number among the arguments


class TensorArgument(NamedTuple):
    """A tensor that a kernel reads or writes: its name, its position among the arguments, and the axes along which it
    extends."""

    name: str
    position: int
    meta: Meta
    along: tuple[bool, ...]


class NumberArgument(NamedTuple):
    """A number that a kernel takes, with its dtype: the argument at a position, or a constant (-1)."""

    name: str
    dtype: Any
    position: int
    constant: Any = None


class LoopCall(NamedTuple):
    """A call of a loop, which is part of an op."""

    op: str
    name: str
    loop: UfuncLoop
    operands: tuple[str, ...]
    result: str


class KernelBlock(NamedTuple):
    """A kernel's tensors, numbers and lines, and for each output its tensor and value. `axes`: the sizes of the axes
    after joining."""

    inputs: tuple[TensorArgument, ...]
    numbers: tuple[NumberArgument, ...]
    lines: tuple[LoopCall, ...]
    outputs: tuple[tuple[TensorArgument, str], ...]
    axes: tuple[int, ...]

    @property
    def tensors(self) -> tuple[TensorArgument, ...]:
        """The tensors that the kernel reads and writes."""
        return (*self.inputs, *(tensor for tensor, _ in self.outputs))

    @property
    def wide(self) -> bool:
        """Return whether counting the elements takes 64 bits."""
        return any(tensor.meta.nbytes >> 31 for tensor in self.tensors)

    @property
    def parameters(self) -> int:
        """The most bytes of the kernel's parameters."""
        return 8 * (len(self.tensors) + len(self.numbers) + len(self.axes) + 2)

    @property
    def pack(self) -> int:
        """The number of elements that a thread may compute at once: as many of the widest dtype as one access moves."""
        widest = max(t.meta.dtype.itemsize for t in self.tensors if t.along[-1:] != (False,))
        return ACCESS_BYTES // widest

    def is_packed(self, tensor: TensorArgument) -> bool:
        """Return whether neighbouring elements of a result have neighbouring elements in the tensor."""
        return tensor.along[-1:] == (True,)

    def divides(self) -> bool:
        """Return whether packs fit: the last of several axes has a whole number of them, so none crosses the end of a
        row."""
        return len(self.axes) < 2 or self.axes[-1] % self.pack == 0

    def sizes(self) -> list[int]:
        """The number of elements of all axes, of all but the first, and so on."""
        return [math.prod(self.axes[n:]) for n in range(max(len(self.axes), 1))]


def block_of(program: Program, fusion: Fusion, traces: Traces) -> KernelBlock | None:
    """The block of a fusion; None if a kernel cannot take its parameters, or no result is needed."""
    metas = [program.metas[n] if n >= 0 else None for n in fusion.inputs]
    made = [meta for n in fusion.outputs if (meta := program.metas[n]) is not None]
    if not fusion.outputs:
        return None
    building = BlockBuilder(metas, made)
    names: dict[int, Given] = dict(zip(fusion.inputs, building.given, strict=True))
    for step in (program.steps[position] for position in fusion.steps):
        trace = traces(program, step)
        if trace is None:
            return None
        names[step.first] = building.add(step.op, trace, [names[operand] for operand in step.operands])
    return building.finish([names[n] for n in fusion.outputs])


def block_of_call(call: KernelCall, trace: KernelTrace) -> KernelBlock | None:
    """The block of a call of an op; None if a kernel cannot take its parameters."""
    metas = [meta if isinstance(meta, Meta) else None for meta in call.metas]
    building = BlockBuilder(metas, [meta for meta in call.outputs if meta is not None])
    return building.finish([building.add(call.op.name, trace, building.given)])


class BlockBuilder:
    """Names values, and collects lines. `inputs`: metas, None for a number. `given`: the name of each input, or the
    position of a number."""

    def __init__(self, inputs: Sequence[Meta | None], outputs: Sequence[Meta]) -> None:
        tensors = [(position, meta) for position, meta in enumerate(inputs) if meta is not None]
        joined = JoinedAxes.of([meta.shape for meta in (*(meta for _, meta in tensors), *outputs)])
        self.axes = joined.lengths
        self.inputs = [
            TensorArgument(f"a{k}", position, meta, joined.along(k)) for k, (position, meta) in enumerate(tensors)
        ]
        first = len(self.inputs)
        self.outputs = [
            TensorArgument(f"r{k}", len(inputs) + k, meta, joined.along(first + k)) for k, meta in enumerate(outputs)
        ]
        self.given: list[Given] = list(range(len(inputs)))
        for tensor in self.inputs:
            self.given[tensor.position] = tensor.name
        self.lines: list[LoopCall] = []
        self.numbers: dict[tuple[Any, ...], NumberArgument] = {}

    def add(self, op: str, trace: KernelTrace, operands: Sequence[Given]) -> str:
        """Add the lines of an op's call; returns the name of its result."""
        results: list[str] = []
        for call in trace.calls:
            pairs = zip(call.operands, call.loop.taken, strict=True)
            names = [self.name_of(operand, dtype, operands, results) for operand, dtype in pairs]
            results.append(f"v{len(self.lines)}")
            self.lines.append(LoopCall(op, call.name, call.loop, tuple(names), results[-1]))
        return results[-1]

    def name_of(self, operand: Operand, dtype: Any, operands: Sequence[Given], results: Sequence[str]) -> str:
        """The name of an operand of a loop."""
        if isinstance(operand, Constant):
            return self.number(np.dtype(dtype), -1, np.dtype(dtype).type(operand.number))
        if operand >= 0:
            return results[operand]
        given = operands[~operand]
        return given if isinstance(given, str) else self.number(np.dtype(dtype), given)

    def number(self, dtype: Any, position: int, constant: Any = None) -> str:
        """The name of a number that is passed with that dtype."""
        key = (dtype.name, position, None if constant is None else constant.tobytes())
        found = self.numbers.setdefault(key, NumberArgument(f"n{len(self.numbers)}", dtype, position, constant))
        return found.name

    def finish(self, results: Sequence[Given]) -> KernelBlock | None:
        """The block, unless it has too many parameters."""
        outputs = tuple(zip(self.outputs, map(str, results), strict=True))
        block = KernelBlock(tuple(self.inputs), tuple(self.numbers.values()), tuple(self.lines), outputs, self.axes)
        return block if block.parameters <= MAX_PARAMETER_BYTES else None
