"""Decides where the values of a fusion lie while one piece is computed.

A temporary replaces an operand that dies with the step, or lies in the piece of an output that is not written yet, or
in scratch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ...interpreter.programs.facts import metas_of
from ...interpreter.programs.fusion import Fusion
from ...interpreter.programs.program import Program, Step
from ...interpreter.programs.rows import RowShape
from ...interpreter.schema.opdef import BoundKernel, find
from ...interpreter.schema.promotion import number_dtype
from ...interpreter.types.meta import Shape

Bind: TypeAlias = Callable[[Program, Step], BoundKernel]


class FusedStep(NamedTuple):
    """One step of a fusion: a kernel, the positions of its operands, and the position of its result.

    `arrays` selects the values at these positions from a list of all.
    """

    kernel: BoundKernel
    operands: tuple[int, ...]
    result: int
    arrays: Callable[[list[Any]], Any]


class FusedExtent(Enum):
    """The part of a piece that a value covers: all elements, or one for each row, with or without the rows' axes."""

    WHOLE = auto()
    THIN = auto()
    DROPPED = auto()

    def lengths(self, piece: Shape, rows: int) -> Shape:
        """The value's shape in a piece of shape `piece`, whose rows have `rows` axes."""
        if self is FusedExtent.WHOLE:
            return piece
        return piece[:rows] if self is FusedExtent.DROPPED else RowShape(piece, rows).thin

    def count(self, piece: Shape, rows: int) -> int:
        """The value's elements in such a piece."""
        return math.prod(self.lengths(piece, rows))


def extent_of(fusion: Fusion, shape: Shape) -> FusedExtent:
    """The extent of a step's result of that shape."""
    if shape == fusion.shape:
        return FusedExtent.WHOLE
    return FusedExtent.THIN if len(shape) == len(fusion.shape) else FusedExtent.DROPPED


class Temporary(NamedTuple):
    """The memory of a temporary: in the piece of an output, or in a part of the scratch."""

    output: int  # or -1
    part: int  # or -1
    dtype: Any


class ScratchPart(NamedTuple):
    """A part of the scratch: the bytes of an element, and the extent."""

    width: int
    extent: FusedExtent


@dataclass(slots=True)
class Cell:
    """Memory for a piece: the piece of an output, or a part of the scratch.

    `until`: the last step that reads the present value, of `dtype`. `end`: the step that makes the output there.
    """

    output: int
    part: int
    itemsize: int
    extent: FusedExtent = FusedExtent.WHOLE
    until: int = -1
    dtype: Any = None
    end: float = math.inf
    made: Any = None  # the output's dtype

    def takes(self, step: int, last: int, dtype: Any, extent: FusedExtent = FusedExtent.WHOLE) -> bool:
        """Return whether a value of that extent may lie here, from step `step`, which makes it, to its last reader
        `last`.

        A step may overwrite an operand of the same dtype.
        """
        if extent is not self.extent:
            return False
        fits = dtype.itemsize <= self.itemsize if self.output < 0 else dtype.itemsize == self.itemsize
        free = self.until < step or (self.until == step and self.dtype == dtype)
        return fits and free and (last < self.end or (last == self.end and dtype == self.made))


class FusedLayout:
    """The calls of a fusion, and the positions of its values: first inputs, then outputs, numbers as arrays, and
    temporaries.

    `lend`: temporaries may lie in the pieces of outputs. `bind`: gives a step its kernel, which then takes plain
    numbers; without it, NumPy's kernels are used. `parts`: the parts of the scratch. `numbers`: for each number that
    becomes an array, its position among the inputs, and its dtype. `lent`, `apart`: the positions of temporaries in
    outputs and in the scratch, with the output or part, and the dtype.
    """

    def __init__(self, program: Program, fusion: Fusion, *, lend: bool, bind: Bind | None = None) -> None:
        self.calls: list[FusedStep] = []
        self.temporaries: list[Temporary] = []
        self.parts: list[ScratchPart] = []
        self.rows = fusion.rows
        self._fusion = fusion
        self._metas = program.metas
        self._lasts = last_reads(program, fusion)
        arguments = (*fusion.inputs, *fusion.outputs)
        self._positions = {operand: position for position, operand in enumerate(arguments)}
        self._given = len(arguments)
        self.numbers: list[tuple[int, Any]] = []
        steps = [program.steps[position] for position in fusion.steps]
        converted = [{} if bind is not None else self._converted(program, step) for step in steps]
        self._arguments = self._given + len(self.numbers)
        self._cells = self._lent(program, fusion) if lend else []
        for number, position in enumerate(fusion.steps):
            step = program.steps[position]
            operands = tuple([converted[number].get(operand) or self._positions[operand] for operand in step.operands])
            if step.first not in self._positions:
                self._positions[step.first] = self._temporary(number, step.first)
            kernel = (bind or kernel_of)(program, step)
            result = self._positions[step.first]
            self.calls.append(FusedStep(kernel, operands, result, itemgetter(*operands, result)))
        found = list(enumerate(self.temporaries, self._arguments))
        self.lent = [(position, each.output, each.dtype) for position, each in found if each.output >= 0]
        self.apart = [(position, each.part, each.dtype) for position, each in found if each.output < 0]

    @property
    def width(self) -> int:
        """The bytes of scratch for one element of the fusion's shape."""
        return sum(part.width for part in self.parts if part.extent is FusedExtent.WHOLE)

    def _lent(self, program: Program, fusion: Fusion) -> list[Cell]:
        """The memory of the outputs: free until the outputs are made, once inputs that lie there were read."""
        made = {program.steps[position].first: number for number, position in enumerate(fusion.steps)}
        cells = []
        for output, over in zip(fusion.outputs, fusion.over, strict=True):
            dtype = self._dtype(output)
            until = -1 if over < 0 else self._lasts[fusion.inputs[over]]
            position, extent = self._positions[output], self._extent(output)
            cells.append(Cell(position, -1, dtype.itemsize, extent, until, dtype, made[output], dtype))
        return cells

    def _converted(self, program: Program, step: Step) -> dict[int, int]:
        """The position of the step's number as an array, of the dtype that NumPy would give it, if there is such a
        number."""
        dtype = number_dtype(find(step.op), metas_of(program, step))
        if dtype is None:
            return {}
        number = min(step.operands)
        wanted = (self._positions[number], dtype)
        if wanted not in self.numbers:
            self.numbers.append(wanted)
        return {number: self._given + self.numbers.index(wanted)}

    def _dtype(self, value: int) -> Any:
        meta = self._metas[value]
        return None if meta is None else meta.dtype  # values of a fusion are never pending

    def _extent(self, value: int) -> FusedExtent:
        meta = self._metas[value]
        return FusedExtent.WHOLE if meta is None else extent_of(self._fusion, meta.shape)

    def _temporary(self, step: int, value: int) -> int:
        """A position for a result that only the fusion reads."""
        dtype, last, extent = self._dtype(value), self._lasts.get(value, step), self._extent(value)
        fitting = [cell for cell in self._cells if cell.takes(step, last, dtype, extent)]
        cell = max(fitting, key=lambda cell: (cell.until == step, cell.output >= 0), default=None)
        if cell is None:
            cell = Cell(-1, len(self.parts), dtype.itemsize, extent)
            self.parts.append(ScratchPart(dtype.itemsize, extent))
            self._cells.append(cell)
        cell.until, cell.dtype = last, dtype
        if cell.output >= 0 and dtype == cell.made:
            return cell.output
        wanted = Temporary(cell.output, cell.part, dtype)
        if wanted not in self.temporaries:
            self.temporaries.append(wanted)
        return self._arguments + self.temporaries.index(wanted)


def kernel_of(program: Program, step: Step) -> BoundKernel:
    """The kernel of a step for its pieces; for reductions of rows, the one that takes the fewest calls."""
    op, metas, attributes = find(step.op), metas_of(program, step), dict(step.attributes)
    known = tuple([meta for meta in metas if meta is not None])
    direct = op.direct(known, step.results, attributes) if op.rows is not None and op.direct is not None else None
    return direct or op.bind(np, len(metas), attributes)


def last_reads(program: Program, fusion: Fusion) -> dict[int, int]:
    """The last step that reads each operand of a fusion's steps."""
    return {
        operand: number for number, position in enumerate(fusion.steps) for operand in program.steps[position].operands
    }
