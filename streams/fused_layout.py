"""Where the values of a fusion lie while one piece is computed.

A temporary takes the place of an operand that dies with the step, or lies in the piece of an output that is still to be
written, or in scratch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from ..interpreter.programs.fusion import Fusion
from ..interpreter.programs.passes.facts import metas_of
from ..interpreter.programs.program import Program, Step
from ..interpreter.schema.opdef import BoundKernel, find
from ..interpreter.schema.promotion import number_dtype


class Call(NamedTuple):
    """One step of a fusion: a kernel, the places of its operands, and that of its result.

    `arrays` takes what lies at these places out of a list of all.
    """

    kernel: BoundKernel
    operands: tuple[int, ...]
    result: int
    arrays: Callable[[list[Any]], Any]


class Temporary(NamedTuple):
    """Where a temporary lies: in the piece of the output at a place, or in the part of the scratch with a number."""

    output: int  # or -1
    part: int  # or -1
    dtype: Any


@dataclass(slots=True)
class Cell:
    """Memory for a piece: that of the output at a place, or a part of the scratch.

    `until`: the last step that reads what lies there now, of `dtype`. `end`: the step that makes the output there.
    """

    output: int
    part: int
    itemsize: int
    until: int = -1
    dtype: Any = None
    end: float = math.inf
    made: Any = None  # the output's dtype

    def takes(self, step: int, last: int, dtype: Any) -> bool:
        """May a value lie here that `step` makes and `last` reads for the last time?

        A step may write over what it reads, in the same dtype.
        """
        fits = dtype.itemsize <= self.itemsize if self.output < 0 else dtype.itemsize == self.itemsize
        free = self.until < step or (self.until == step and self.dtype == dtype)
        return fits and free and (last < self.end or (last == self.end and dtype == self.made))


class FusedLayout:
    """The calls of a fusion, and the places of its values: those of inputs, outputs, numbers that are arrays, and
    temporaries, in this order.

    `lend`: may temporaries lie in the pieces of outputs? `widths`: bytes per element of each part of the scratch.
    `numbers`: of each that is an array, the place among the inputs, and the dtype. `lent`, `apart`: the places of
    temporaries in outputs and in the scratch, with the output or the part, and the dtype.
    """

    def __init__(self, program: Program, fusion: Fusion, *, lend: bool) -> None:
        self.calls: list[Call] = []
        self.temporaries: list[Temporary] = []
        self.widths: list[int] = []
        self._metas = program.metas
        self._lasts = last_reads(program, fusion)
        arguments = (*fusion.inputs, *fusion.outputs)
        self._places = {operand: place for place, operand in enumerate(arguments)}
        self._given = len(arguments)
        self.numbers: list[tuple[int, Any]] = []
        converted = [self._converted(program, program.steps[place]) for place in fusion.steps]
        self._arguments = self._given + len(self.numbers)
        self._cells = self._lent(program, fusion) if lend else []
        for number, place in enumerate(fusion.steps):
            step = program.steps[place]
            operands = tuple([converted[number].get(operand) or self._places[operand] for operand in step.operands])
            if step.first not in self._places:
                self._places[step.first] = self._temporary(number, step.first)
            kernel = find(step.op).bind(np, len(operands), dict(step.attributes))
            result = self._places[step.first]
            self.calls.append(Call(kernel, operands, result, itemgetter(*operands, result)))
        found = list(enumerate(self.temporaries, self._arguments))
        self.lent = [(place, each.output, each.dtype) for place, each in found if each.output >= 0]
        self.apart = [(place, each.part, each.dtype) for place, each in found if each.output < 0]

    def _lent(self, program: Program, fusion: Fusion) -> list[Cell]:
        """The memory of the outputs: free until they are made, once the inputs that lie there were read."""
        made = {program.steps[place].first: number for number, place in enumerate(fusion.steps)}
        cells = []
        for output, over in zip(fusion.outputs, fusion.over, strict=True):
            dtype = self._dtype(output)
            until = -1 if over < 0 else self._lasts[fusion.inputs[over]]
            cells.append(Cell(self._places[output], -1, dtype.itemsize, until, dtype, made[output], dtype))
        return cells

    def _converted(self, program: Program, step: Step) -> dict[int, int]:
        """The place of the step's number as an array of the dtype that NumPy would give it, if there is one."""
        dtype = number_dtype(find(step.op), metas_of(program, step))
        if dtype is None:
            return {}
        number = min(step.operands)
        wanted = (self._places[number], dtype)
        if wanted not in self.numbers:
            self.numbers.append(wanted)
        return {number: self._given + self.numbers.index(wanted)}

    def _dtype(self, value: int) -> Any:
        meta = self._metas[value]
        return None if meta is None else meta.dtype  # a fusion has no pending values

    def _temporary(self, step: int, value: int) -> int:
        """A place for what the step makes and only the fusion reads."""
        dtype, last = self._dtype(value), self._lasts.get(value, step)
        fitting = [cell for cell in self._cells if cell.takes(step, last, dtype)]
        cell = max(fitting, key=lambda cell: (cell.until == step, cell.output >= 0), default=None)
        if cell is None:
            cell = Cell(-1, len(self.widths), dtype.itemsize)
            self.widths.append(dtype.itemsize)
            self._cells.append(cell)
        cell.until, cell.dtype = last, dtype
        if cell.output >= 0 and dtype == cell.made:
            return cell.output
        wanted = Temporary(cell.output, cell.part, dtype)
        if wanted not in self.temporaries:
            self.temporaries.append(wanted)
        return self._arguments + self.temporaries.index(wanted)


def last_reads(program: Program, fusion: Fusion) -> dict[int, int]:
    """For each operand of a fusion's steps the number of the last one that reads it."""
    return {operand: number for number, place in enumerate(fusion.steps) for operand in program.steps[place].operands}
